// The list of topics, and how a topic becomes tables.
#include "lab/explain/explain.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "embedded/topic_pages.h"
#include "lab/explain/topics.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

const std::vector<Topic>& all() {
  static const std::vector<Topic> topics = {
      {"warm-up", topic_pages::kWarmUpMd, explain_warmup, true},
      {"synchronisation", topic_pages::kSynchronisationMd, explain_synchronisation, true},
      {"std", topic_pages::kStdMd, explain_std, true},
      {"launch-bound", topic_pages::kLaunchBoundMd, explain_launch_bound, true},
      {"profiler-overhead", topic_pages::kProfilerOverheadMd, explain_profiler_overhead, true},
      {"flops", topic_pages::kFlopsMd, explain_flops},
      {"lora", topic_pages::kLoraMd, explain_lora},
      {"roofline", topic_pages::kRooflineMd, explain_roofline, true},
      {"gemm-share", topic_pages::kGemmShareMd, explain_gemm_share},
      {"fusion", topic_pages::kFusionMd, explain_fusion, true},
      {"peak-memory", topic_pages::kPeakMemoryMd, explain_peak_memory},
      {"saved-for-backward", topic_pages::kSavedForBackwardMd, explain_saved_for_backward},
      {"residual-stream", topic_pages::kResidualStreamMd},
      {"adamw", topic_pages::kAdamwMd, explain_adamw},
      {"oom", topic_pages::kOomMd, explain_oom},
      {"checkpointing", topic_pages::kCheckpointingMd, explain_checkpointing},
      {"attention-memory", topic_pages::kAttentionMemoryMd},
      {"flash-attention", topic_pages::kFlashAttentionMd, explain_flash_attention},
      {"data-parallel", topic_pages::kDataParallelMd, explain_data_parallel, false, true},
      {"parallel-limits", topic_pages::kParallelLimitsMd, explain_parallel_limits, false, true},
      {"softmax", topic_pages::kSoftmaxMd, explain_softmax},
      {"mixed-precision", topic_pages::kMixedPrecisionMd, explain_mixed_precision},
      {"accumulation", topic_pages::kAccumulationMd, explain_accumulation},
      {"autocast", topic_pages::kAutocastMd, explain_autocast},
      {"loss-scaling", topic_pages::kLossScalingMd, explain_loss_scaling},
      {"rmsnorm", topic_pages::kRmsnormMd, explain_rmsnorm},
  };
  return topics;
}

// Sets the values that every page may use: the model, and letters such as B and T.
Values letters(const ExplainInput& input) {
  const Letters n(input);
  Values out;
  out.set("model", input.model.name);
  out.set("B", n.b).set("T", n.t).set("C", n.c).set("F", n.f).set("H", n.h).set("D", n.d);
  out.set("K", input.model.key_heads()).set("L", n.l).set("V", n.v).set("P", n.p);
  out.set("BTC", n.b * n.t * n.c).set("BTF", n.b * n.t * n.f).set("BHTT", n.scores());
  return out;
}

// Parses the page of a topic, the only one of its file.
pages::Page page_of(const Topic& topic) {
  return std::move(pages::parse(topic.page).at(0));
}

// True if the text has the word, in any case; a word ends where letters and digits end.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const auto lowered = [](std::string_view of) {
    std::string out(of);
    std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
    return out;
  };
  const std::string lower = lowered(text), asked = lowered(word);
  const auto is_inner = [&](std::size_t at) { return at < text.size() && is_letter(text[at]); };
  for (std::size_t at = lower.find(asked); at != lower.npos; at = lower.find(asked, at + 1)) {
    if ((at == 0 || !is_inner(at - 1)) && !is_inner(at + asked.size())) return true;
  }
  return false;
}

// Topics whose pages have the word, in any case; if a question asks about it alone, only those.
std::vector<std::string> topics_about(std::string_view word) {
  constexpr std::size_t kShortest = 3;
  std::vector<std::string> asking, naming;
  for (const Topic& topic : all()) {
    if (word.size() < kShortest) break;
    if (has_word(page_of(topic).text("Question"), word)) asking.emplace_back(topic.name);
    if (has_word(topic.page, word)) naming.emplace_back(topic.name);
  }
  return asking.empty() ? naming : asking;
}

}  // namespace

std::string whose(const ResultRow& row, const ExplainInput& input) {
  return fmt::format("{} on {}{}", row.label(), row.text("device"),
                     input.is_measured_now ? " (measured now)" : "");
}

std::span<const Topic> topics() {
  return all();
}

const Topic& topic_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Topic& topic : all()) {
    if (topic.name == name) return topic;
    names.emplace_back(topic.name);
  }
  if (const auto near = closest(name, names)) names = {*near};
  if (names.size() > 1) {
    if (auto about = topics_about(name); !about.empty()) names = std::move(about);
  }
  const bool is_found = names.size() < all().size();
  throw Error(ErrorCode::kUsage, "explain",
              is_found ? fmt::format("there is no topic \"{}\"; did you mean {}?", name,
                                     fmt::join(names, " or "))
                       : fmt::format("there is no topic \"{}\"", name),
              "tracestep explain lists the topics");
}

Table topic_table() {
  Table table{.name = "topics",
              .title = "Topics",
              .columns = {col::topic, col::question},
              .notes = {"tracestep explain TOPIC explains one"}};
  for (const Topic& topic : all()) table.add_row({topic.name, page_of(topic).text("Question")});
  return table;
}

std::vector<Table> explain(const Topic& topic, const ExplainInput& input) {
  const pages::Page page = page_of(topic);
  Explanation found{.values = letters(input)};
  std::optional<ResultRow> row;
  ExplainInput seen = input;
  seen.row = [&] { return row ? *row : row.emplace(input.row()); };
  if (topic.work != nullptr) topic.work(seen, found);
  Table first = fill(page, found.values);
  first.title = fmt::format("{}: {}", topic.name, page.text("Question"));
  if (row) {
    for (const Verdict& v : judge(*row)) first.notes.push_back(verdict_line(row->label(), v));
  }
  for (const auto& [label, text] : page.labelled) {
    if (label == "Trap") first.notes.push_back("trap: " + text);
  }
  std::vector<Table> tables = {std::move(first)};
  for (Table& table : found.more) tables.push_back(std::move(table));
  return tables;
}

}  // namespace tracestep
