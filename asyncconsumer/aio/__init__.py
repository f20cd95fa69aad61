"""What a background task needs: a block to live in, waits between tries, a log it cannot flood."""
