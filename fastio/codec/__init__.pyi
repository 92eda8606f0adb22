from fastio.codec.codec import Codec as Codec
from fastio.codec.table import CODECS as CODECS
from fastio.codec.table import describe_status as describe_status
