// Registration of rope_set_rows with torch.
