#include "cli/fit_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "nn/families.h"
#include "tokens/text_source.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kMostDevices = 65'536;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
constexpr double kUsualBytes = 4;  // of a token, in English text
constexpr const char* kTokenizerFile = "tokenizer.json";

struct CountedTokens {
  std::int64_t count = 0;
  std::string how = {};  // "by the tokenizer in FOLDER"
};

CountedTokens counted_text(const ModelConfig& model, TokenOptions data) {
  std::error_code error;
  const std::filesystem::path folder =
      model.file != nullptr ? model.file->path : std::filesystem::path(model.source);
  if (data.tokenizer.empty() && std::filesystem::exists(folder / kTokenizerFile, error)) {
    data.tokenizer = folder.string();
  }
  const bool is_preset = std::ranges::count(model_presets(), model.name, &ModelConfig::name) > 0;
  // Bytes are the tokens of presets, and of models that are described by their sizes.
  const bool is_of_bytes = is_preset || (model.name == ModelConfig().name && model.source.empty());
  if (!data.tokenizer.empty() || is_of_bytes) {
    const std::int64_t count = open_tokens(data, nullptr).tokens->size();
    return {count, data.tokenizer.empty() ? "one for each byte (--tokenizer)"
                                          : "by the tokenizer " + data.tokenizer};
  }
  const double bytes = static_cast<double>(read_text(data.text).text.size());
  return {std::max<std::int64_t>(1, std::llround(bytes / kUsualBytes)),
          fmt::format("one for {:g} bytes, as in English, for the tokenizer of {} is not here "
                      "(--tokenizer DIR)",
                      kUsualBytes, model.name)};
}

void add_data_options(OptionSet& set, PlanOptions& o) {
  set.value("--tokens", "N|FILE",
            "tokens to train on, as 1T, or a file of them: says how many days that takes",
            [&o](const std::string& where, const std::string& text) {
              std::error_code error;
              if (std::filesystem::is_regular_file(text, error)) {
                o.data.tokens = text;
              } else {
                o.tokens = parse_count(where, text, 1, kMostTokens, Thousand::kDecimal);
              }
            });
  add_text_options(set, o.data);
  set.real("--epochs", o.epochs, {.min = 0.001},
           "times that the training reads --text or the file of --tokens; when left out once");
}

void check_data(const PlanOptions& o) {
  if (o.epochs > 0 && !o.has_data()) {
    throw Error(ErrorCode::kUsage, "--epochs", "an epoch is once through a data set",
                "give --text PATH... or --tokens FILE");
  }
  if (o.tokens > 0 && o.has_data()) {
    throw Error(ErrorCode::kUsage, "--text", "how many tokens there are is given by --tokens",
                "give one of the two");
  }
}

}  // namespace

const char* flag_of_training(const PlanOptions& o) {
  if (!o.data.text.empty()) return "--text";
  return o.has_tokens() ? "--tokens" : "--days";
}

void add_plan_options(OptionSet& set, PlanOptions& o) {
  set.group("On how many devices, and for how long");
  set.integer("--gpus", o.gpus, {1, kMostDevices},
              "devices that share the step: chooses how (replicas, shards, tensor parallel, "
              "micro-batches) and what else makes it fit");
  set.integer("--nodes", o.nodes, {1, kMostDevices},
              "nodes that these are on, equally; by default as few as their link joins");
  set.value("--smallest", "gpus", "find the fewest devices that fit, and are done in --days",
            [&o](const std::string& where, const std::string& text) {
              check_choice(where, text, std::vector<std::string>{"gpus"});
              o.is_smallest = true;
            });
  set.real("--link-gb-s", o.link_gb_s, {.min = 0.0},
           "GB/s that each device gets from the others of its node, the bus bandwidth of comm; by "
           "default 0.73 of the data sheet's link");
  set.real("--network-gb-s", o.network_gb_s, {.min = 0.0},
           "GB/s that each device gets from other nodes");
  add_data_options(set, o);
  set.real(
      "--days", o.days, {.min = 0.001},
      "days to train for: says how many tokens that is, or, with --tokens and --smallest gpus, "
      "how many devices are done by then");
  set.real("--cost-per-hour", o.cost_per_hour, {.min = 0.0}, "of one device: says the price");
}

void check_training(const PlanOptions& o, const std::string& largest) {
  const auto fail = [](const char* flag, const char* what, const char* hint) {
    throw Error(ErrorCode::kUsage, flag, what, hint);
  };
  if (o.is_training() && !largest.empty() && largest != kLargestModel) {
    fail(flag_of_training(o), "a training is of one batch and one context",
         "leave out --largest, and give the batch that it found");
  }
  check_data(o);
  if (o.has_tokens() && o.days > 0 && !o.is_smallest) {
    fail("--days", "how many days the tokens take is what is answered",
         "give one of the two, or --smallest gpus: the fewest devices that are done by then");
  }
  if (o.cost_per_hour > 0 && !o.is_training()) {
    fail("--cost-per-hour", "a price is of a number of hours", "give --tokens or --days");
  }
}

std::string count_tokens(const ModelConfig& model, PlanOptions& o) {
  if (!o.has_data()) return {};
  const CountedTokens found =
      o.data.text.empty()
          ? CountedTokens{open_tokens(o.data, nullptr).tokens->size(), "as the file has them"}
          : counted_text(model, o.data);
  const double epochs = o.epochs > 0 ? o.epochs : 1;
  o.tokens = std::max<std::int64_t>(1, std::llround(epochs * static_cast<double>(found.count)));
  return fmt::format("tokens: {:g} epoch{} of {}, counted {}", epochs, epochs == 1 ? "" : "s",
                     format_count(static_cast<double>(found.count)), found.how);
}

std::string note_of_link(const PublishedDevice& device, int ranks) {
  return fmt::format(
      "; ranks of one host, linked by {} at {:.0f} GB/s each way, {:.0f} % of the nominal rate: "
      "comm measures it, --link-gb-s takes it",
      ranks <= device.link_ranks ? device.link : "PCIe", device.reached_link_gb_s(ranks),
      100 * kLinkShare);
}

std::string note_of(const Fitted& found) {
  if (!found.stopped) return {};
  switch (*found.stopped) {
    case Stopped::kAtNode:
      return fmt::format(
          "the {} devices of one node are too few: for more, --network-gb-s says how fast the "
          "network between nodes is",
          found.gpus);
    case Stopped::kAtMostTried:
      return fmt::format("more than {} devices were not tried", found.gpus);
    case Stopped::kAtBatch: break;
  }
  return fmt::format("{} devices cannot share the step: for more than {} give a larger --batch",
                     2 * found.gpus, found.gpus);
}

}  // namespace tracestep::cli
