// Random valid programs with a run that they are meant for: a function of the seed, so that a
// program that shows a fault can be made again.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "passes/pipeline.h"
#include "support/random_ops.h"
#include "support/run_program.h"

namespace tracestep::testing {

struct RandomCase {
  Program program;  // forward; with updates of its own if the mode is inference
  RunSpec run;
  std::map<std::string, LeafRange> ranges;  // of leaves that do not have the usual one

  // Writes the random choices of the run as text.
  std::string wishes() const;
};

RandomCase random_case(std::uint64_t seed);

// Values for the leaves of the program, as it is or after any pass; none for shadows, which the
// store derives from their parameters.
Tensors leaf_values(const RandomCase& random, const Program& program);

}  // namespace tracestep::testing
