"""A bucket below the disk, which machines share: what is put is uploaded later, and what the disk lacks is brought."""
