#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "spec/parse_words.h"
#include "spec/parts.h"
#include "spec/peft_config.h"

namespace tracestep {
namespace {

constexpr const char* kNoAdapters = "none";
constexpr std::int64_t kMostAdapterRank = 1 << 16;
constexpr double kMostAlpha = 1e6, kMostDropped = 0.99;

using AdapterField = SpecField<Adapters>;

// Splits `text` at + into paths of weights (layers.0-15, *.q_proj) or names; refuses repeated ones.
std::vector<std::string> parse_paths(const About& where, const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('+', start), text.size());
    std::string path = text.substr(start, end - start);
    const auto is_of_path = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '*' || c == '-';
    };
    if (path.empty() || !std::ranges::all_of(path, is_of_path)) {
      fail_usage(where, "\"{}\" is no path; give some as layers.0-15 or *.q_proj, joined by +",
                 path);
    }
    if (std::ranges::find(out, path) != out.end()) fail_usage(where, "{} is there twice", path);
    out.push_back(std::move(path));
    start = end + 1;
  }
  return out;
}

using Paths = std::vector<std::string>;

AdapterField paths_field(const char* name, Paths examples, Paths Adapters::*member) {
  return {.name = name,
          .value_name = "NAMES",
          .examples = std::move(examples),
          .value =
              [member](const Adapters& a) {
                return Json(fmt::format("{}", fmt::join(a.*member, "+")));
              },
          .parse = [member](const About& where, const std::string& text) -> AdapterField::Change {
            return [member, paths = parse_paths(where, text)](Adapters& a) { a.*member = paths; };
          }};
}

std::vector<AdapterField> all_adapter_fields() {
  FieldRows<Adapters> rows;
  rows.integer({.name = "r", .examples = {"1", "4", "16"}}, 1, kMostAdapterRank,
               in(&Adapters::rank));
  rows.real({.name = "alpha", .examples = {"16", "0.5"}}, 0.0, kMostAlpha, in(&Adapters::alpha));
  rows.add(
      paths_field("targets", {"q", "q+k+v+o", "all", "layers.0.*.q_proj"}, &Adapters::targets));
  rows.real({.name = "dropout", .examples = {"0.1"}}, 0.0, kMostDropped, in(&Adapters::dropout));
  rows.toggle({.name = "rslora"}, in(&Adapters::is_rank_stabilised));
  rows.add(paths_field("whole", {"lm_head", "token_embeddings+ln_final"}, &Adapters::whole));
  rows.choice({.name = "base"}, kAll<BaseWeights>, in(&Adapters::base));
  rows.text({.name = "from", .value_name = "DIR"}, in(&Adapters::from));
  return rows.take();
}

// Reads the adapters in the folder `given.from`; throws if a part given beside it is different.
Adapters settled(const About& where, const Adapters& given) {
  const Adapters usual{.rank = kUsualRank};
  Adapters out = read_peft_config(given.from);
  out.base = given.base;
  for (const AdapterField& field : adapter_fields()) {
    const Json value = field.value(given);
    if (value == field.value(usual) || value == field.value(out)) continue;
    throw Error(ErrorCode::kUsage, where,
                fmt::format("{} is {} in {}, not {}", field.name, text_of(field, out), given.from,
                            text_of(field, given)),
                "leave it out: adapters of a folder are as they are");
  }
  return out;
}

}  // namespace

std::span<const SpecField<Adapters>> adapter_fields() {
  static const std::vector<AdapterField> all = all_adapter_fields();
  return all;
}

Adapters parse_adapters(const About& where, const std::string& text) {
  if (text == kNoAdapters) return {};
  Adapters out{.rank = kUsualRank};
  set_parts(where, text, adapter_fields(), out, [&](const std::string& part) {
    throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no part of a choice", part),
                fmt::format("give none, or some of {}, as r=16,alpha=32,targets=q+k+v+o",
                            forms_of(adapter_fields())));
  });
  return out.from.empty() ? out : settled(where, out);
}

std::string name_of(const Adapters& choice) {
  return choice.is_on() ? text_of_parts(adapter_fields(), choice, Adapters()) : kNoAdapters;
}

FrozenParts parse_frozen(const About& where, const std::string& text) {
  return text == "none" ? FrozenParts() : FrozenParts{parse_paths(where, text)};
}

}  // namespace tracestep
