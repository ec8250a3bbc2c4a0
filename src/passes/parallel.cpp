#include "passes/parallel.h"

#include <cmath>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/exact_bytes.h"
#include "base/units.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMostRanks = 65536, kMostPrefetched = 1024;

// The text before the first comma of `rest`, which is cut off.
std::string take_part(std::string& rest) {
  const std::size_t comma = rest.find(',');
  std::string out = rest.substr(0, comma);
  rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  return out;
}

std::int64_t parse_bucket(const std::string& where, const std::string& text) {
  if (text == "tensor") return Parallel::kEachTensor;
  if (text == "all") return Parallel::kAllTensors;
  if (text == "auto") return Parallel::kByModel;
  const std::int64_t bytes = parse_bytes(where, text);
  if (bytes < 1) fail_usage(where, "a bucket of \"{}\" holds nothing", text);
  return bytes;
}

// Whether the value is the first of the two.
bool is_first_of(const std::string& where, const std::string& part, const std::string& value,
                 const char* first, const char* second) {
  if (value == first) return true;
  if (value == second) return false;
  throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no choice", part),
              fmt::format("give {} or {}", first, second));
}

Overlap parse_overlap(const std::string& where, const std::string& part, const std::string& value) {
  if (value == "updates") return Overlap::kUpdates;
  return is_first_of(where, part, value, "on", "off") ? Overlap::kBackward : Overlap::kOff;
}

[[noreturn]] void fail_part(const std::string& where, const std::string& part) {
  const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  if (is_number) fail_usage(where, "\"{0}\" is no choice; did you mean dp={0}?", part);
  throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no part of a choice", part),
              "give none, or dp=N with shard=0|1|2|3, bucket=SIZE|tensor|all|auto, sums=low|full, "
              "overlap=on|off|updates, prefetch=N, and tp=N or tp=N,sp, as dp=2,bucket=25MiB,tp=2");
}

void set_part(const std::string& where, const std::string& part, std::set<std::string>& seen,
              Parallel& out) {
  const std::size_t equals = part.find('=');
  const std::string name = part.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
  const bool has_form = (equals == std::string::npos) == (name == "sp");
  if (has_form && !seen.insert(name).second) fail_usage(where, "{} is there twice", name);
  if (!has_form) {
    fail_part(where, part);
  } else if (name == "dp") {
    out.ranks = static_cast<int>(parse_int(where, value, 1, kMostRanks));
  } else if (name == "tp") {
    out.tensor = static_cast<int>(parse_int(where, value, 1, kMostRanks));
  } else if (name == "sp") {
    out.divides_rows = true;
  } else if (name == "shard") {
    out.shard = static_cast<int>(parse_int(where, value, 0, 3));
  } else if (name == "bucket") {
    out.bucket_bytes = parse_bucket(where, value);
  } else if (name == "overlap") {
    out.overlap = parse_overlap(where, part, value);
  } else if (name == "sums") {
    out.low_sums = is_first_of(where, part, value, "low", "full");
  } else if (name == "prefetch") {
    out.prefetch = static_cast<int>(parse_int(where, value, 0, kMostPrefetched));
  } else {
    fail_part(where, part);
  }
}

std::string bucket_text(std::int64_t bytes) {
  if (bytes == Parallel::kEachTensor) return "tensor";
  return bytes == Parallel::kAllTensors ? "all" : exact_bytes(bytes);
}

// As it was read, where `ranks` is still the number of replicas. What one replica or one rank of a
// replica cannot do is left out: it does what a run without that does.
Parallel normal(const std::string& where, const Parallel& read) {
  if (read.divides_rows && !read.is_divided()) {
    throw Error(ErrorCode::kUsage, where, "one rank alone has all rows",
                "leave out sp, or give tp=N");
  }
  Parallel out = read;
  if (read.ranks == 1) {
    out = {.tensor = read.tensor, .divides_rows = read.divides_rows};
  }
  if (std::int64_t{read.ranks} * read.tensor > kMostRanks) {
    fail_usage(where, "{} times {} ranks; {} are possible", read.ranks, read.tensor, kMostRanks);
  }
  out.ranks = read.ranks * read.tensor;
  return out;
}

}  // namespace

Parallel resolve_bucket(Parallel choice, std::int64_t gradient_bytes) {
  if (choice.bucket_bytes != Parallel::kByModel) return choice;
  const double least =
      std::sqrt(static_cast<double>(gradient_bytes) * kLinkBytesPerS * kCallSeconds);
  choice.bucket_bytes =
      choice.shards_optimizer() ? std::int64_t{25} << 20 : static_cast<std::int64_t>(least);
  return choice;
}

Parallel parse_parallel(const std::string& where, const std::string& text) {
  Parallel out;
  if (text == "none") return out;
  std::string rest = text;
  std::set<std::string> seen;
  do {
    set_part(where, take_part(rest), seen, out);
  } while (!rest.empty());
  const bool gathers_ahead = out.shards_weights() && !out.is_divided();
  if (!gathers_ahead && out.prefetch != Parallel().prefetch) {
    throw Error(ErrorCode::kUsage, where,
                "weights are gathered ahead with shard=3 alone, and not with tp",
                "leave out prefetch=");
  }
  if (out.overlap == Overlap::kUpdates && (out.shards_optimizer() || out.is_divided())) {
    throw Error(ErrorCode::kUsage, where, "only whole gradients can be summed beside the updates",
                "leave out overlap=updates, or shard=N and tp=N");
  }
  return normal(where, out);
}

std::string name_of(const Parallel& choice) {
  if (!choice.is_on()) return "none";
  std::vector<std::string> parts;
  if (choice.replicas() > 1) parts.push_back(fmt::format("dp={}", choice.replicas()));
  if (choice.shard > 0) parts.push_back(fmt::format("shard={}", choice.shard));
  if (choice.bucket_bytes != Parallel().bucket_bytes) {
    parts.push_back("bucket=" + bucket_text(choice.bucket_bytes));
  }
  if (choice.low_sums) parts.emplace_back("sums=low");
  if (choice.overlap != Overlap::kBackward) {
    parts.emplace_back(choice.overlap == Overlap::kOff ? "overlap=off" : "overlap=updates");
  }
  if (choice.prefetch != Parallel().prefetch) {
    parts.push_back(fmt::format("prefetch={}", choice.prefetch));
  }
  if (choice.is_divided()) parts.push_back(fmt::format("tp={}", choice.tensor));
  if (choice.divides_rows) parts.emplace_back("sp");
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace tracestep
