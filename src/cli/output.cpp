#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"
#include "train/output_file.h"

namespace tracestep::cli {

void probe_output(const OutputOptions& output) {
  if (!output.path.empty()) check_writable(output.path);
}

void write_text(std::string_view text, const std::filesystem::path& path) {
  if (!path.empty()) return write_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) end_by_broken_pipe();
    throw Error(ErrorCode::kOutput, "output",
                fmt::format("stdout cannot be written: {}", std::strerror(errno)));
  }
}

void write_tables(const OutputOptions& output, std::string schema, Json environment,
                  std::vector<Table> tables) {
  write_output({std::move(schema), std::move(environment), std::move(tables)}, output.format,
               output.path.string());
}

}  // namespace tracestep::cli
