#include "lab/measure/measurement.h"

namespace tracestep {

void apply_precision(ModelConfig& model, std::string_view precision) {
  model.precision = parse_precision("--precision", precision);
}

}  // namespace tracestep
