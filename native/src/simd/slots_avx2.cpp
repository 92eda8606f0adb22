// Runs of slots in AVX2: the plain loops, which the compiler turns into vectors of four slots.
#if defined(__x86_64__)

#include "tokens/slots.h"

namespace fastio {

constexpr SlotLoops avx2_slot_loops = plain_slot_loops;

}  // namespace fastio

#endif
