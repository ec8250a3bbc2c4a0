#include "cli/fresh_process.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/child_process.h"
#include "cli/flag_words.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

// The flags that select one run of a grid and those of its output. All take one value.
std::vector<std::string> own_flags() {
  std::vector<std::string> out{"--warmup-study", "--processes", "--format",
                               "--output",       "--resume",    "--roof"};
  for (const RunField& field : run_fields()) {
    if (!field.is_axis) continue;
    out.push_back(field.flag);
    if (!field.alias.empty()) out.push_back(field.alias);
  }
  return out;
}

std::vector<std::string> arguments_of(const RunSpec& run, std::span<const std::string> arguments,
                                      std::span<const std::pair<std::string, std::string>> flags) {
  std::vector<std::string> dropped = own_flags();
  for (const auto& [flag, value] : flags) dropped.push_back(flag);
  std::vector<std::string> out = without_flags(arguments, dropped);
  for (const RunField& field : run_fields()) {
    // Empty for the size of a custom model, which is already among the arguments.
    const std::string value = default_text(field, run);
    if (field.is_axis && !value.empty()) out.insert(out.end(), {field.flag, value});
  }
  for (const auto& [flag, value] : flags) {
    if (!value.empty()) out.insert(out.end(), {flag, value});
  }
  out.insert(out.end(), {"--format", "json"});
  return out;
}

}  // namespace

Json bench_in_new_process(const RunSpec& run, std::span<const std::string> arguments,
                          std::vector<std::pair<std::string, std::string>> flags,
                          const std::string& where) {
  const ProcessResult process = run_self(arguments_of(run, arguments, flags));
  if (process.status != 0 && process.status != exit_code(ErrorCode::kOutOfMemory)) {
    throw Error(ErrorCode::kFailed, where,
                fmt::format("a process of its own ended with status {}: {}", process.status,
                            last_line(process.err)));
  }
  return Json::parse(process.out, where);
}

}  // namespace tracestep::cli
