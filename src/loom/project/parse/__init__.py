"""What a text defines and which names and words it uses: by a grammar, or by its lines."""
