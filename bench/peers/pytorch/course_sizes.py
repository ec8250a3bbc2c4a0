"""The course's model by the names of its sizes, and its forms in bench_models.py; needs no torch."""

SIZES = {
    "tiny": dict(d_model=256, d_ff=1024, layers=4, heads=4),
    "small": dict(d_model=768, d_ff=3072, layers=12, heads=12),
    "medium": dict(d_model=1024, d_ff=4096, layers=24, heads=16),
    "large": dict(d_model=1280, d_ff=5120, layers=36, heads=20),
    "xl": dict(d_model=1600, d_ff=6400, layers=48, heads=25),
    "2.7B": dict(d_model=2560, d_ff=10240, layers=32, heads=32),
    "xl-2026": dict(d_model=2560, d_ff=10240, layers=32, heads=32),
    "10B": dict(d_model=4608, d_ff=12288, layers=50, heads=36),
}
# What bench_models.py calls them, and what bench_gpu.py does.
FORMS = {"eager": "best-eager", "layers": "best", "graph": "graph"}
