#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/output_file.h"
#include "base/signals.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

// The path of the file that writing to `path` would create or replace: links are followed, also
// when their target does not exist yet.
fs::path resolved(const fs::path& path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  fs::path out = fs::absolute(path, error);
  for (int i = 0; i < kMostLinks && fs::is_symlink(out, error); ++i) {
    out = out.parent_path() / fs::read_symlink(out, error);
  }
  const fs::path canonical = fs::weakly_canonical(out, error);
  return error ? out.lexically_normal() : canonical;
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  return fs::equivalent(a, b, error) || resolved(a) == resolved(b);
}

}  // namespace

void check_apart(std::span<const NamedPath> inputs, std::span<const NamedPath> outputs) {
  const auto check = [](const NamedPath& output, const NamedPath& other, const char* loss) {
    if (!is_same_file(output.path, other.path)) return;
    throw Error(
        ErrorCode::kUsage, output.flag,
        fmt::format("{} is the file of {} as well{}", output.path.string(), other.flag, loss),
        "name another file");
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedPath& input : inputs) check(outputs[i], input, ", which would be lost");
    for (const NamedPath& other : outputs.first(i)) check(outputs[i], other, "");
  }
}

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
