"""Section "Reinforcement learning in continuous action spaces": policy updates inside a KL trust region."""
