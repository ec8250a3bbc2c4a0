// tracestep doctor: shows what this machine and this build have, what is missing, and the ceilings
// with which speeds are compared.
#include <filesystem>
#include <memory>
#include <ranges>

#include "backends/comm/launch/launched.h"
#include "backends/cpu/bf16_products.h"
#include "base/env.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/cuda.h"
#include "cli/devices.h"
#include "cli/mpi.h"
#include "cli/output.h"
#include "lab/report/known_columns.h"
#include "tokens/tokenizer.h"

namespace tracestep::cli {
namespace {

struct DoctorOptions {
  RunGrid grid;
  OutputOptions output;
  bool ceilings = false;
};

bool has_simd(const Json& environment, std::string_view flag) {
  for (const Json& found : environment.at("simd").items()) {
    if (found.as_string() == flag) return true;
  }
  return false;
}

// Adds a row: how the CPU multiplies bfloat16; "slow" where the system forbids its faster way.
void add_bf16_part(Table& table) {
  const bool is_refused = cpu::tile_support() == cpu::TileSupport::kRefused;
  std::string note;
  switch (cpu::bf16_products()) {
    case cpu::Bf16Products::kTiles: note = "by tiles (AMX)"; break;
    case cpu::Bf16Products::kPairs: note = "by pairs (AVX512-BF16)"; break;
    default: note = "as float32, widened while operands are packed"; break;
  }
  if (is_refused) note += "; the processor has AMX, but the system does not permit its tiles";
  table.add_row({"products of bfloat16", is_refused ? "slow" : "ok", note});
}

Table parts_table(const Json& environment) {
  Table table{.name = "parts",
              .title = "What is there",
              .columns = {col::part, text_column("state"), text_column("note")}};
  const bool avx512 = has_simd(environment, "avx512f"), avx2 = has_simd(environment, "avx2");
  const bool neon = has_simd(environment, "asimd");
  table.add_row({"device cpu", "ok", "float32, bfloat16 and float16 storage"});
  table.add_row({"SIMD", avx512 || avx2 || neon ? "ok" : "slow",
                 avx512 ? "AVX-512"
                 : avx2 ? "AVX2"
                 : neon ? "NEON"
                        : "neither AVX2 nor AVX-512: scalar "
                          "kernels"});
  add_bf16_part(table);
  table.add_row({"huge pages", environment.at("huge_pages") == Json("never") ? "off" : "ok",
                 environment.at("huge_pages") == Json("never")
                     ? "large buffers are slower to touch; set transparent_hugepage to madvise"
                     : "used for large buffers"});
  table.add_row({"device reference", "ok", "float64, slow: the oracle of the tests"});
  table.add_row({"device null", "ok", "plans and counts bytes, computes nothing"});
  add_cuda_parts(table);
  table.add_row({"MPI", has_mpi() ? "ok" : "missing",
                 has_mpi()
                     ? "connects processes on CPUs"
                     : "install libopenmpi-dev and build again; ranks as threads work without"});
  table.add_row({"bpe vocabularies", has_bpe() ? "ok" : "missing",
                 has_bpe() ? "SentencePiece"
                           : "install libsentencepiece-dev and build again; bytes work without"});
  return table;
}

Table variables_table() {
  Table table{.name = "variables",
              .title = "Environment variables",
              .columns = {text_column("variable"), col::value,
                          text_column("default_value", "default"), col::doc}};
  const std::span<const env::Variable> tables[] = {env::variables(), env::kLaunchVariables};
  for (const env::Variable& variable : tables | std::views::join) {
    auto value = env::value_of(variable);
    if (value && variable.is_secret) value = "set";
    table.add_row(
        {variable.name, value ? Json(*value) : Json(), variable.default_value, variable.doc});
  }
  return table;
}

int run_doctor(const DoctorOptions& o, std::span<const std::string> arguments) {
  const RunSpec run = run_of(o.grid, Takes::kFast, o.ceilings ? DeviceUse::kRun : DeviceUse::kPlan);
  probe_output(o.output);
  const Json environment = environment_of(arguments, run);
  std::vector<Table> tables{key_value_table("environment", "This machine and build", environment),
                            parts_table(environment), variables_table()};
  if (o.ceilings) {
    ProgressLine progress;
    progress.update("measuring the machine's ceilings, about ten seconds");
    for (Table& table : ceiling_tables(run)) tables.push_back(std::move(table));
  }
  write_tables(o.output, "tracestep.doctor/1", environment, std::move(tables));
  return 0;
}

}  // namespace

Command doctor_command() {
  const auto options = std::make_shared<DoctorOptions>();
  Command command{.name = "doctor"};
  OptionSet& set = command.options;
  set.group("What to measure");
  set.toggle("--ceilings", options->ceilings,
             "peak multiply-adds, bandwidth, matrix products; about ten seconds on a CPU");
  add_field(set, options->grid, "device", Values::kOne, "whose ceilings: cpu, cuda[:N]");
  add_field(set, options->grid, "threads", Values::kOne);
  add_output_options(set, options->output);
  runs_with(command, options, run_doctor);
  return command;
}

}  // namespace tracestep::cli
