// The list of topics with their traps, and how a topic becomes tables.
#include "lab/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "base/units.h"
#include "lab/explain/topics.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

const std::vector<Topic>& all() {
  static const std::vector<Topic> topics = {
      {"warm-up",
       "why are the first steps no samples?",
       true,
       {"a mean over all steps holds the first one: few steps make it several times too large",
        "a standard deviation near the mean, or above it, is a first step among the samples",
        "deviations of runs with 0, 1 and 5 warm-up steps are of different numbers of samples"},
       explain_warmup},
      {"synchronisation",
       "what does the clock measure when nobody waits?",
       true,
       {"a GPU runs behind its host: without a wait the clock reads how long issuing took",
        "a forward time that does not grow with the context is such a reading; what it left out "
        "then counts as backward",
        "a wait inside the step, between its parts, adds a gap to each: time parts by the device's "
        "own clock"},
       explain_synchronisation},
      {"std",
       "how sure is a median, and what does a deviation say?",
       true,
       {"the deviation says how much steps vary, not how well their mean is known",
        "with n in the denominator it is smaller than with n - 1, and tables seldom say which",
        "times are skewed: one slow step moves mean and deviation, and the median hardly"},
       explain_std},
      {"launch-bound",
       "is it the device that is slow, or the host?",
       true,
       {"times that grow with the number of layers and not with their width measure launches",
        "a faster device does not help such a step, and a low precision makes it slower: casts are "
        "launches too",
        "speed-ups measured there say nothing of larger sizes"},
       explain_launch_bound},
      {"profiler-overhead",
       "what does looking cost?",
       true,
       {"a profiler adds time to every launch: small models look several times slower, large ones "
        "hardly",
        "a comparison of precisions under a profiler compares launches",
        "sums of kernel times, spans, host ranges and wall clocks are four figures: name the one"},
       explain_profiler_overhead},
      {"flops",
       "how many operations has a step?",
       false,
       {"SwiGLU has three matrices of C·F, not two",
        "embedding look-up is no product; the head is one",
        "attention's products are O(T²·C), not O(T³); softmax is O(T²)",
        "backward has twice the products of forward, so forward and backward are three times it"},
       explain_flops},
      {"roofline",
       "what bounds a kernel: arithmetic or memory?",
       true,
       {"a share of the peak says little where bytes are the bound: compare with the lower roof",
        "more TFLOP/s than the roof means a wrong time, a wrong count or a wrong unit",
        "fp32 products have another roof than TF32 or bf16 ones on the same device"},
       explain_roofline},
      {"gemm-share",
       "why does the share of matrix products fall in training?",
       false,
       {"the products triple in training; the rest more than triples: gradients of norms, softmax "
        "and activations, and the optimizer",
        "a share of time is none of FLOPs: what moves bytes takes time and has few",
        "kernel counts over several passes must be divided by their number: 7L + 1 products with "
        "weights and 2L of attention are one forward pass"},
       explain_gemm_share},
      {"peak-memory",
       "what is alive at the fullest moment?",
       false,
       {"16 bytes per parameter is what holds when gradients stay; set to none they are not there "
        "while activations are",
        "GB of 10^9 bytes and GiB differ by 7 %: tables mix them",
        "a forward peak depends on what it means: no gradients, gradients on, or the last result "
        "still held"},
       explain_peak_memory},
      {"saved-for-backward",
       "which values wait for backward, and how many bytes are they?",
       false,
       {"counting the residual stream alone forgets the norms' inputs and outputs, RoPE and SiLU",
        "formulas count elements: four bytes each in fp32",
        "a view saves nothing; the copy behind it does"},
       explain_saved_for_backward},
      {"residual-stream",
       "how large is one tensor between the blocks?",
       false,
       {"asked for one tensor, answer with one: the sum over layers is another question",
        "it is seldom the largest: scores grow with T², hidden values with F, weights with "
        "neither"},
       explain_residual_stream},
      {"adamw",
       "what does the optimizer compute and hold?",
       false,
       {"its two states are 8 bytes per parameter, in fp32 also under autocast",
        "without bias correction the first steps are far too small",
        "a default that is built eagerly (a zero tensor per parameter and step) costs a full write "
        "each"},
       explain_adamw},
      {"oom",
       "why did it run out of memory, and by how much?",
       false,
       {"a loop that keeps the last result while it computes the next holds two graphs",
        "forward alone can run out where forward and backward do not: backward frees the graph",
        "a time hundreds of times too long is memory of the host in use: a status, and no time"},
       explain_oom},
      {"checkpointing",
       "what does keeping less cost?",
       false,
       {"the memory of one group's inside is there while it is computed again: tiny groups keep "
        "many inputs, large ones a large inside",
        "one more forward is a third more FLOPs, and not twice the time",
        "scores that are computed again must see the same mask and the same random numbers"},
       explain_checkpointing},
      {"attention-memory",
       "how does attention's memory grow with the context?",
       false,
       {"8 × 16384² numbers of 4 bytes are 8 GiB, not 32 GB",
        "the same benchmark holds one, two or three such tensors: weights, exp before the "
        "division, "
        "scores",
        "bytes over T² tend to a multiple of batch × heads × 4; another limit is a unit error"},
       explain_attention_memory},
      {"flash-attention",
       "how can softmax be computed without its row?",
       false,
       {"it saves bytes, not FLOPs: backward computes the scores again",
        "what is kept is one number per row, the log-sum-exp, beside q, k, v and the result",
        "a running maximum is needed, since exp of raw scores overflows"},
       explain_flash_attention},
      {"softmax",
       "what does softmax cost beside attention's products?",
       false,
       {"compare with attention's two products, not with all products of the model: the first is "
        "tens of percent, the second a few",
        "the ratio of FLOPs is not that of time: softmax moves bytes",
        "5 operations per score or 1 are both right: print what is counted"},
       explain_softmax},
      {"mixed-precision",
       "what do the formats hold?",
       false,
       {"bf16 has the range of fp32 and 8 bits of precision; fp16 more precision and little range",
        "products in low precision still add up in fp32",
        "weights are copied to the low format once per step, which costs memory"},
       explain_mixed_precision},
      {"accumulation",
       "where do sums in narrow formats stop?",
       false,
       {"a sum stalls where its spacing is twice the term, and stays there",
        "bf16 stalls first: it has the fewest bits",
        "an fp32 sum of fp16 terms can overshoot: the stored term is not the term"},
       explain_accumulation},
      {"autocast",
       "which values are narrow under autocast, and why?",
       false,
       {"parameters and their gradients stay in fp32; what is multiplied is cast",
        "softmax, norms and losses run in fp32; their inputs may be narrow",
        "einsum and matmul are the same product to it"},
       explain_autocast},
      {"loss-scaling",
       "why does fp16 need it and bf16 not?",
       false,
       {"gradients are smaller than activations by many powers of two: fp16 flushes them to zero",
        "the scale must be taken out again before clipping and before the optimizer",
        "a scale that overflows makes the step be skipped, not clipped"},
       explain_loss_scaling},
      {"rmsnorm",
       "what in a norm is sensitive to its format?",
       false,
       {"squares overflow fp16 from 256 on, and its epsilon is below the least normal number",
        "bf16 has the range, and loses bits in the sum instead",
        "it has no mean, no variance and no bias: those are LayerNorm's"},
       explain_rmsnorm},
  };
  return topics;
}

}  // namespace

std::span<const Topic> topics() {
  return all();
}

const Topic& topic_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Topic& topic : all()) {
    if (topic.name == name) return topic;
    names.emplace_back(topic.name);
  }
  throw Error(ErrorCode::kUsage, "explain",
              fmt::format("there is no topic \"{}\"{}", name, did_you_mean(name, names)),
              fmt::format("topics are {}", fmt::join(names, ", ")));
}

Table topic_table() {
  Table table{.name = "topics",
              .title = "Topics",
              .columns = {text_column("topic"), text_column("question")}};
  for (const Topic& topic : all()) table.add_row({topic.name, topic.title});
  return table;
}

std::vector<Table> explain(const Topic& topic, const ExplainInput& input) {
  std::vector<Table> tables = topic.tables(input);
  Table& first = tables.front();
  first.title = fmt::format("{}: {}", topic.name, topic.title);
  for (std::string_view trap : topic.traps) first.notes.push_back(fmt::format("trap: {}", trap));
  return tables;
}

Worked::Worked()
    : table_{.name = "explain",
             .columns = {text_column("what"), text_column("formula"),
                         text_column("numbers", "with numbers"), text_column("shown", "value"),
                         data_only(real_column("value", "", "", -1)),
                         data_only(text_column("unit"))}} {}

Worked& Worked::add(std::string what, std::string formula, std::string numbers, std::string shown,
                    double value, std::string unit) {
  table_.add_row({std::move(what), std::move(formula), std::move(numbers), std::move(shown), value,
                  std::move(unit)});
  return *this;
}

Worked& Worked::bytes(std::string what, std::string formula, std::string numbers, double value) {
  return add(std::move(what), std::move(formula), std::move(numbers),
             format_bytes(static_cast<std::int64_t>(value)), value, "B");
}

Worked& Worked::ms(std::string what, std::string formula, std::string numbers, double value) {
  return add(std::move(what), std::move(formula), std::move(numbers), format_duration_ms(value),
             value, "ms");
}

Worked& Worked::flops(std::string what, std::string formula, std::string numbers, double value) {
  return add(std::move(what), std::move(formula), std::move(numbers), format_flops(value), value,
             "FLOP");
}

Worked& Worked::ratio(std::string what, std::string formula, std::string numbers, double value) {
  return add(std::move(what), std::move(formula), std::move(numbers), fmt::format("{:.4g}", value),
             value);
}

Worked& Worked::note(std::string line) {
  table_.notes.push_back(std::move(line));
  return *this;
}

}  // namespace tracestep
