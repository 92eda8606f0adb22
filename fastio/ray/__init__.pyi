from fastio.ray.packing import pack as pack
from fastio.ray.sink import Sink as Sink
