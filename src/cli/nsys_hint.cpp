#include "cli/hints.h"

#include <fmt/format.h>

#include "base/shell_words.h"

namespace tracestep::cli {

std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells) {
  // The range `measure` of our domain is a registered string, so nsys finds it without more flags.
  std::string out = "nsys profile --trace=cuda,nvtx,cublas --sample=none --cpuctxsw=none";
  out += " --capture-range=nvtx --nvtx-capture=measure@tracestep";
  out += cells > 1 ? fmt::format(" --capture-range-end=repeat:{}", cells)
                   : std::string(" --capture-range-end=stop");
  out += " --output=tracestep " + shell_quoted(program.string());
  for (const std::string& word : arguments) {
    if (word != "--nsys-hint") out += " " + shell_quoted(word);
  }
  return out;
}

}  // namespace tracestep::cli
