#include "cli/nsys_hint.h"

#include <algorithm>

#include <fmt/format.h>

namespace tracestep::cli {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./,:=+@%").find(c) != std::string_view::npos;
}

std::string quoted(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells) {
  // The range `measure` of our domain is a registered string, so nsys finds it without more flags.
  std::string out = "nsys profile --trace=cuda,nvtx,cublas --sample=none --cpuctxsw=none";
  out += " --capture-range=nvtx --nvtx-capture=measure@tracestep";
  out += cells > 1 ? fmt::format(" --capture-range-end=repeat:{}", cells)
                   : std::string(" --capture-range-end=stop");
  out += " --output=tracestep " + quoted(program.string());
  for (const std::string& word : arguments) {
    if (word != "--nsys-hint") out += " " + quoted(word);
  }
  return out;
}

}  // namespace tracestep::cli
