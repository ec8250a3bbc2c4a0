#include "passes/recomputation.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/exact_bytes.h"
#include "base/suggest.h"
#include "base/units.h"

namespace tracestep {
namespace {

using Kind = Recomputation::Kind;

constexpr std::string_view kEvery = "every=", kBudget = "budget=";
constexpr int kMostTogether = 1 << 20;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(at, start), text.size());
    out.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

bool is_path(std::string_view text) {
  const auto is_name = [](const std::string& name) {
    const auto of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    return name == "*" || (!name.empty() && std::ranges::all_of(name, of_name));
  };
  return std::ranges::all_of(split(text, '.'), is_name);
}

}  // namespace

Recomputation parse_recomputation(const std::string& where, const std::string& text) {
  const std::string path(kBlocks);
  if (text == "none") return {};
  if (text == "blocks") return {.kind = Kind::kParts, .paths = {path}};
  if (text == "nested") return {.kind = Kind::kNested, .paths = {path}};
  if (text.starts_with(kEvery)) {
    const auto n = parse_int(where, text.substr(kEvery.size()), 1, kMostTogether);
    return {.kind = Kind::kParts, .paths = {path}, .every = static_cast<int>(n)};
  }
  if (text.starts_with(kBudget)) {
    const std::int64_t bytes = parse_bytes(where, text.substr(kBudget.size()));
    if (bytes < 1) fail_usage(where, "\"{}\" leaves no memory at all", text);
    return {.kind = Kind::kBudget, .budget_bytes = bytes};
  }
  const std::vector<std::string> paths = split(text, '+');
  const std::array<std::string, 5> words = {"none", "blocks", "nested", "every=2", "budget=20GiB"};
  const auto close = closest(text, words);
  if (close || !std::ranges::all_of(paths, is_path)) {
    throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no choice", text),
                close ? fmt::format("did you mean {}?", *close)
                      : "give none, blocks, nested, every=N, budget=SIZE, or paths as "
                        "layers.*.ffn+layers.*.attn");
  }
  return {.kind = Kind::kParts, .paths = paths};
}

std::string name_of(const Recomputation& choice) {
  switch (choice.kind) {
    case Kind::kNone: return "none";
    case Kind::kNested: return "nested";
    case Kind::kBudget: return fmt::format("{}{}", kBudget, exact_bytes(choice.budget_bytes));
    case Kind::kParts: break;
  }
  if (choice.every > 1) return fmt::format("{}{}", kEvery, choice.every);
  const bool is_blocks = choice.paths == std::vector<std::string>{std::string(kBlocks)};
  return is_blocks ? "blocks" : fmt::format("{}", fmt::join(choice.paths, "+"));
}

}  // namespace tracestep
