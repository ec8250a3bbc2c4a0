// The command line with which Nsight Systems records just the timed steps.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace tracestep::cli {

// `program` run with `arguments` (without --nsys-hint) under nsys, one report for each of `cells`.
// Words are quoted for a shell.
std::string nsys_command(const std::filesystem::path& program,
                         std::span<const std::string> arguments, std::size_t cells);

}  // namespace tracestep::cli
