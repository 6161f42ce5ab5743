// Registration of rope_qk with torch.
