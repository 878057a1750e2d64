"""What keeps a store in order, beside the answers: removing, calibrating, embedding anew."""
