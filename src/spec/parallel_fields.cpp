#include <vector>

#include "base/units.h"
#include "spec/parse_words.h"
#include "spec/parts.h"

namespace tracestep {
namespace {

constexpr int kMostRanks = 65536, kMostPrefetched = 1024;

using Field = SpecField<Parallel>;

// Returns the field "dp", which reads N replicas into `ranks`; normal() counts all ranks there.
Field replicas_field() {
  return {.name = "dp",
          .examples = {"2"},
          .value = [](const Parallel& p) { return Json(p.replicas()); },
          .parse = [](const About& where, const std::string& text) -> Field::Change {
            const auto count = static_cast<int>(parse_int(where, text, 1, kMostRanks));
            return [count](Parallel& p) { p.ranks = count; };
          }};
}

std::string bucket_text(const Parallel& p) {
  switch (p.bucket_bytes) {
    case Parallel::kEachTensor: return "tensor";
    case Parallel::kAllTensors: return "all";
    case Parallel::kByModel: return "auto";
    default: return exact_bytes(p.bucket_bytes);
  }
}

std::int64_t parse_bucket(const About& where, const std::string& text) {
  for (const std::int64_t bytes :
       {Parallel::kEachTensor, Parallel::kAllTensors, Parallel::kByModel}) {
    if (text == bucket_text({.bucket_bytes = bytes})) return bytes;
  }
  const std::int64_t bytes = parse_bytes(where, text);
  if (bytes < 1) fail_usage(where, "a bucket of \"{}\" holds nothing", text);
  return bytes;
}

Field bucket_field() {
  return {.name = "bucket",
          .value_name = "SIZE|tensor|all|auto",
          .examples = {"tensor", "1KiB", "auto"},
          .value = [](const Parallel& p) { return Json(bucket_text(p)); },
          .parse = [](const About& where, const std::string& text) -> Field::Change {
            const std::int64_t bytes = parse_bucket(where, text);
            return [bytes](Parallel& p) { p.bucket_bytes = bytes; };
          }};
}

Field sums_field() {
  return {.name = "sums",
          .choices = {"full", "low"},
          .examples = {"low"},
          .value = [](const Parallel& p) { return Json(p.low_sums ? "low" : "full"); },
          .parse = [](const About& where, const std::string& text) -> Field::Change {
            check_choice(where, text, std::vector<std::string>{"full", "low"});
            return [is_low = text == "low"](Parallel& p) { p.low_sums = is_low; };
          }};
}

std::vector<Field> all_fields_of_parallel() {
  FieldRows<Parallel> rows;
  rows.add(replicas_field());
  rows.integer({.name = "shard", .value_name = "0|1|2|3", .examples = {"1", "2", "3"}}, 0, 3,
               in(&Parallel::shard));
  rows.add(bucket_field());
  rows.add(sums_field());
  rows.choice({.name = "overlap", .examples = {"off", "updates"}}, kAll<Overlap>,
              in(&Parallel::overlap));
  rows.integer({.name = "prefetch", .examples = {"2"}}, 0, kMostPrefetched,
               in(&Parallel::prefetch));
  rows.integer({.name = "tp", .examples = {"2"}}, 1, kMostRanks, in(&Parallel::tensor));
  rows.toggle({.name = "sp"}, in(&Parallel::divides_rows));
  return rows.take();
}

[[noreturn]] void fail_part(const About& where, const std::string& part) {
  const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  if (is_number) fail_usage(where, "\"{0}\" is no choice; did you mean dp={0}?", part);
  throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no part of a choice", part),
              fmt::format("give none, or some of {}, as dp=2,bucket=25MiB,tp=2",
                          forms_of(parallel_fields())));
}

// Returns `read`, in which `ranks` is the number of replicas, with `ranks` set to that of all
// ranks. Parts that mean nothing for a single replica or a single rank get their defaults.
Parallel normal(const About& where, const Parallel& read) {
  if (read.divides_rows && !read.is_divided()) {
    throw Error(ErrorCode::kUsage, where, "one rank alone has all rows",
                "leave out sp, or give tp=N");
  }
  Parallel out = read;
  if (read.ranks == 1) {
    out = {.tensor = read.tensor, .divides_rows = read.divides_rows};
    if (read.is_divided()) out.overlap = read.overlap;
  }
  if (std::int64_t{read.ranks} * read.tensor > kMostRanks) {
    fail_usage(where, "{} times {} ranks; {} are possible", read.ranks, read.tensor, kMostRanks);
  }
  out.ranks = read.ranks * read.tensor;
  return out;
}

}  // namespace

std::span<const SpecField<Parallel>> parallel_fields() {
  static const std::vector<Field> all = all_fields_of_parallel();
  return all;
}

Parallel parse_parallel(const About& where, const std::string& text) {
  Parallel out;
  if (text == "none") return out;
  set_parts(where, text, parallel_fields(), out,
            [&](const std::string& part) { fail_part(where, part); });
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
  return text_of_parts(parallel_fields(), choice, Parallel());
}

}  // namespace tracestep
