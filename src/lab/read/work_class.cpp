#include "lab/read/work_class.h"

#include <algorithm>
#include <span>
#include <string>

namespace tracestep {
namespace {

// Parts of names of kernels and ops, in lower case, that tell the class of their work.
constexpr std::string_view kCollectives[] = {"nccl", "rccl", "c10d::", "gloo:", "allreduce"};
constexpr std::string_view kCopies[] = {"memcpy", "memset"};
constexpr std::string_view kAttention[] = {"fmha",
                                           "flash_fwd",
                                           "flash_bwd",
                                           "flash_attn",
                                           "flash::",
                                           "flash_attention",
                                           "flashattn",
                                           "scaled_dot_product",
                                           "efficient_attention",
                                           "flex_attention",
                                           "paged_attention",
                                           "unified_attention",
                                           "_sdpa_",
                                           "attn_fwd",
                                           "attn_bwd",
                                           "sage_fwd"};
constexpr std::string_view kProducts[] = {
    "splitkreduce", "gemm",          "gemv",     "nvjet",       "cutlass",   "cublas",
    "xmma",         "wgrad",         "dgrad",    "convolution", "conv2d",    "triton_tem_",
    "cijk_",        "matmul",        "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
    "aten::linear", "mkldnn_linear", "scaled_mm"};
constexpr std::string_view kOptimizer[] = {"multi_tensor_apply", "fused_adam", "fusedadam"};

// The class for each list of parts; the first list that fits a name decides. Attention comes before
// products, because its kernels have "gemm" in their templates.
constexpr std::pair<std::span<const std::string_view>, WorkClass> kRules[] = {
    {kCollectives, WorkClass::kCollectives},
    {kCopies, WorkClass::kCopies},
    {kAttention, WorkClass::kAttention},
    {kProducts, WorkClass::kProducts},
    {kOptimizer, WorkClass::kOptimizer}};

}  // namespace

WorkClass work_class_of(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  });
  for (const auto& [parts, work] : kRules) {
    const auto is_in = [&](std::string_view part) { return lower.find(part) != std::string::npos; };
    if (std::ranges::any_of(parts, is_in)) return work;
  }
  return WorkClass::kMemoryBound;
}

}  // namespace tracestep
