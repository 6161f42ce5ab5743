"""Cases, bounds and peers: what results are judged with. The only place that holds a tolerance."""
