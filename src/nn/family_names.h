// Where the tensors of a model are in the files of its family, as transformers writes them. One
// table serves reading and writing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/dims.h"
#include "nn/config.h"

namespace tracestep {

// The tensor in a family's files that contains one of ours, as all or some of its rows.
struct FamilyTensor {
  std::string name = {};       // "model.layers.0.self_attn.q_proj.weight"
  Shape shape = {};            // The shape, with the rows of all our tensors that it contains.
  bool is_transposed = false;  // True: its columns are our rows.
  // Our rows lie in blocks of `width` rows, which begin `step` rows apart, the first one at
  // `first`.
  std::int64_t first = 0, width = 0, step = 0;
  // The first `turned` rows of a block form pairs for rotation: neighbours in our tensor,
  // `turned`/2 rows apart in theirs.
  std::int64_t turned = 0;

  // Returns the row of their tensor that is our row `r`.
  std::int64_t row(std::int64_t r) const;
};

// Returns for each of our tensors the one in the files. `family`: a model_type (nn/families.h);
// `ours`: the shapes of all parameters of `config`. Throws Error{kUsage} for a parameter that the
// family does not have.
std::map<std::string, FamilyTensor> tensors_in_family(std::string_view family,
                                                      const ModelConfig& config,
                                                      const std::map<std::string, Shape>& ours);

// Returns the prefix of a family's tensor names, "model.", which files of models without head lack.
std::string_view stem_of_family(std::string_view family);

}  // namespace tracestep
