// Where the tensors of a model lie in the files of its family, as transformers writes them: one
// table for reading and for writing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/dims.h"
#include "nn/config.h"

namespace tracestep {

// The tensor of a family's files that has one of ours, whole or as some of its rows.
struct FamilyTensor {
  std::string name = {};       // "model.layers.0.self_attn.q_proj.weight"
  Shape shape = {};            // with the rows of all of ours that it has
  bool is_transposed = false;  // its columns are our rows
  // Our rows lie in blocks of `width`, `step` rows from one to the next.
  std::int64_t first = 0, width = 0, step = 0;
  // The first `turned` rows of a block are pairs that a rotation mixes: neighbours here, half of
  // `turned` apart there.
  std::int64_t turned = 0;

  // Their row that is our row `r`.
  std::int64_t row(std::int64_t r) const;
};

// Tensors of the files, by our names. `family`: a model_type (nn/families.h); `ours`: the shapes of
// all parameters of `config`. Error{kUsage} for a parameter that the family has no name for.
std::map<std::string, FamilyTensor> tensors_in_family(std::string_view family,
                                                      const ModelConfig& config,
                                                      const std::map<std::string, Shape>& ours);

// The part of a family's names that a file of the model without its head leaves out: "model.".
std::string_view stem_of_family(std::string_view family);

}  // namespace tracestep
