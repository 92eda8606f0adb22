from fastio.machine.ranks import nodes_of_ranks as nodes_of_ranks
from fastio.machine.ranks import process_group_ranks as process_group_ranks
from fastio.machine.ranks import rank_and_world as rank_and_world
from fastio.machine.resources import available_cpus as available_cpus
from fastio.machine.resources import available_memory as available_memory
from fastio.machine.resources import usable_memory as usable_memory
