// The worked tables of each topic, by the file that makes them; and the table they all start with.
#pragma once

#include "lab/explain/explain.h"

namespace tracestep {

// Rows of "what, formula, with numbers, value".
class Worked {
 public:
  Worked();
  // A number with its unit as people read it; `value` is what data formats get.
  Worked& add(std::string what, std::string formula, std::string numbers, std::string shown,
              double value, std::string unit = {});
  Worked& bytes(std::string what, std::string formula, std::string numbers, double value);
  Worked& ms(std::string what, std::string formula, std::string numbers, double value);
  Worked& flops(std::string what, std::string formula, std::string numbers, double value);
  Worked& ratio(std::string what, std::string formula, std::string numbers, double value);
  Worked& note(std::string line);
  Table table() { return std::move(table_); }

 private:
  Table table_;
};

// explain_time.cpp
std::vector<Table> explain_warmup(const ExplainInput& input);
std::vector<Table> explain_synchronisation(const ExplainInput& input);
std::vector<Table> explain_std(const ExplainInput& input);
std::vector<Table> explain_launch_bound(const ExplainInput& input);
std::vector<Table> explain_profiler_overhead(const ExplainInput& input);
std::vector<Table> explain_flops(const ExplainInput& input);
std::vector<Table> explain_roofline(const ExplainInput& input);
std::vector<Table> explain_gemm_share(const ExplainInput& input);

// explain_memory.cpp
std::vector<Table> explain_peak_memory(const ExplainInput& input);
std::vector<Table> explain_saved_for_backward(const ExplainInput& input);
std::vector<Table> explain_residual_stream(const ExplainInput& input);
std::vector<Table> explain_adamw(const ExplainInput& input);
std::vector<Table> explain_oom(const ExplainInput& input);
std::vector<Table> explain_checkpointing(const ExplainInput& input);
std::vector<Table> explain_attention_memory(const ExplainInput& input);
std::vector<Table> explain_flash_attention(const ExplainInput& input);

// explain_numbers.cpp
std::vector<Table> explain_softmax(const ExplainInput& input);
std::vector<Table> explain_mixed_precision(const ExplainInput& input);
std::vector<Table> explain_accumulation(const ExplainInput& input);
std::vector<Table> explain_autocast(const ExplainInput& input);
std::vector<Table> explain_loss_scaling(const ExplainInput& input);
std::vector<Table> explain_rmsnorm(const ExplainInput& input);

}  // namespace tracestep
