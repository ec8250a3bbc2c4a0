#include <mutex>

#include "ops/functions.h"
#include "ops/registers.h"

namespace tracestep::ops {

void register_all() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_generators();
    register_elementwise();
    register_movement();
    register_assembly();
    register_reductions();
    register_matmul();
    register_gathers();
    register_softmax();
    register_activations();
    register_rms_norm();
    register_layer_norm();
    register_rope();
    register_attention();
    register_flash_attention();
    register_cached_attention();
    register_cross_entropy();
    register_cross_entropy_of_parts();
    register_optimizers();
    register_fused();
    register_collectives();
  });
}

}  // namespace tracestep::ops
