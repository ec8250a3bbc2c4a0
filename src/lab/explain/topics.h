// The functions that compute each topic's numbers, grouped by source file.
#pragma once

#include "lab/explain/explain.h"

namespace tracestep {

// The bytes that one layer saves for backward, from two programs that differ by a layer; both need
// a backward pass.
double saved_by_layer(const ExplainInput& input);

// The run whose times a topic explains: "tiny step fp32 on cpu".
std::string whose(const ResultRow& row, const ExplainInput& input);

// A model's sizes by the letters of docs/glossary.md; P: parameters.
struct Letters {
  double b, t, c, f, h, d, l, v, p;

  explicit Letters(const ExplainInput& input);
  double scores() const { return b * h * t * t; }
};

// Explain topics; these are in time.cpp.
void explain_warmup(const ExplainInput& input, Explanation& out);
void explain_synchronisation(const ExplainInput& input, Explanation& out);
void explain_std(const ExplainInput& input, Explanation& out);
void explain_launch_bound(const ExplainInput& input, Explanation& out);
void explain_profiler_overhead(const ExplainInput& input, Explanation& out);
void explain_flops(const ExplainInput& input, Explanation& out);
void explain_lora(const ExplainInput& input, Explanation& out);
void explain_roofline(const ExplainInput& input, Explanation& out);
void explain_gemm_share(const ExplainInput& input, Explanation& out);

// Explains the topic `fusion`; it is in fusion.cpp.
void explain_fusion(const ExplainInput& input, Explanation& out);

// Explain topics; these are in memory.cpp.
void explain_peak_memory(const ExplainInput& input, Explanation& out);
void explain_saved_for_backward(const ExplainInput& input, Explanation& out);
void explain_adamw(const ExplainInput& input, Explanation& out);
void explain_oom(const ExplainInput& input, Explanation& out);
void explain_flash_attention(const ExplainInput& input, Explanation& out);

// Explains the topic `checkpointing`; it is in checkpointing.cpp.
void explain_checkpointing(const ExplainInput& input, Explanation& out);

// Explain topics; these are in parallel.cpp.
void explain_data_parallel(const ExplainInput& input, Explanation& out);
void explain_parallel_limits(const ExplainInput& input, Explanation& out);

// Explain topics; these are in numbers.cpp.
void explain_softmax(const ExplainInput& input, Explanation& out);
void explain_mixed_precision(const ExplainInput& input, Explanation& out);
void explain_accumulation(const ExplainInput& input, Explanation& out);
void explain_autocast(const ExplainInput& input, Explanation& out);
void explain_loss_scaling(const ExplainInput& input, Explanation& out);
void explain_rmsnorm(const ExplainInput& input, Explanation& out);

}  // namespace tracestep
