// One flash_attention: what the cut of its work and its workspace depend on.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tracestep {

struct AttentionSizes {
  std::int64_t heads = 0;                         // of all sequences, B·H
  std::int64_t queries = 0, keys = 0, width = 0;  // T_q, T_k, D
  DType dtype = DType::kF32;

  bool is_empty() const { return heads * queries == 0 || keys == 0; }
};

}  // namespace tracestep
