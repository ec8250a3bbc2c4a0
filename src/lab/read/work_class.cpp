#include "lab/read/work_class.h"

#include <algorithm>
#include <string>

namespace tracestep {
namespace {

struct NameRule {
  std::string_view part;  // in small letters
  WorkClass work;
};

// The first that fits. Attention stands before products: its kernels have "gemm" in their
// templates.
constexpr NameRule kNameRules[] = {
    {"nccl", WorkClass::kCollectives},
    {"rccl", WorkClass::kCollectives},
    {"c10d::", WorkClass::kCollectives},
    {"gloo:", WorkClass::kCollectives},
    {"allreduce", WorkClass::kCollectives},
    {"memcpy", WorkClass::kCopies},
    {"memset", WorkClass::kCopies},
    {"fmha", WorkClass::kAttention},
    {"flash_fwd", WorkClass::kAttention},
    {"flash_bwd", WorkClass::kAttention},
    {"flash_attn", WorkClass::kAttention},
    {"flash::", WorkClass::kAttention},
    {"flash_attention", WorkClass::kAttention},
    {"flashattn", WorkClass::kAttention},
    {"scaled_dot_product", WorkClass::kAttention},
    {"efficient_attention", WorkClass::kAttention},
    {"flex_attention", WorkClass::kAttention},
    {"_sdpa_", WorkClass::kAttention},
    {"_attn_fwd", WorkClass::kAttention},
    {"_attn_bwd", WorkClass::kAttention},
    {"splitkreduce", WorkClass::kProducts},
    {"gemm", WorkClass::kProducts},
    {"gemv", WorkClass::kProducts},
    {"nvjet", WorkClass::kProducts},
    {"cutlass", WorkClass::kProducts},
    {"cublas", WorkClass::kProducts},
    {"xmma", WorkClass::kProducts},
    {"wgrad", WorkClass::kProducts},
    {"dgrad", WorkClass::kProducts},
    {"convolution", WorkClass::kProducts},
    {"conv2d", WorkClass::kProducts},
    {"triton_tem_", WorkClass::kProducts},
    {"cijk_", WorkClass::kProducts},
    {"matmul", WorkClass::kProducts},
    {"aten::mm", WorkClass::kProducts},
    {"aten::addmm", WorkClass::kProducts},
    {"aten::bmm", WorkClass::kProducts},
    {"aten::baddbmm", WorkClass::kProducts},
    {"aten::linear", WorkClass::kProducts},
    {"mkldnn_linear", WorkClass::kProducts},
    {"scaled_mm", WorkClass::kProducts},
    {"multi_tensor_apply", WorkClass::kOptimizer},
    {"fused_adam", WorkClass::kOptimizer},
    {"fusedadam", WorkClass::kOptimizer},
};

}  // namespace

std::string_view name_of(WorkClass work) {
  switch (work) {
    case WorkClass::kProducts: return "matrix products";
    case WorkClass::kAttention: return "attention";
    case WorkClass::kMemoryBound: return "memory-bound work";
    case WorkClass::kOptimizer: return "the optimizer";
    case WorkClass::kCollectives: return "collectives";
    case WorkClass::kCopies: return "copies";
  }
  return "?";
}

WorkClass work_class_of(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  });
  for (const NameRule& rule : kNameRules) {
    if (lower.find(rule.part) != std::string::npos) return rule.work;
  }
  return WorkClass::kMemoryBound;
}

}  // namespace tracestep
