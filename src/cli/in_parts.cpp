#include "cli/jobs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/locked_file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals.h"
#include "cli/arguments.h"
#include "cli/child_process.h"
#include "cli/job_plan.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "cli/remaining_time.h"
#include "lab/compare/interleaved.h"
#include "lab/compare/merge.h"
#include "lab/compare/result_file.h"
#include "lab/measure/environment.h"

namespace tracestep::cli {
namespace {

struct PartOptions {
  std::filesystem::path resume;
  int processes = 1;

  bool is_used() const { return processes > 1 || !resume.empty(); }
};

// --- the file of --resume ------------------------------------------------------------------------

constexpr const char* kPartsSchema = "tracestep.parts/1";
constexpr std::int64_t kMostPartBytes = std::int64_t{1} << 30;

// JSON lines: a header, then {"part", "result"} of each that is done.
class PartFile {
 public:
  // An empty path keeps nothing. The file is created when missing, and goes again where no part
  // comes; it is locked for the object's lifetime. Errors: kInput when it exists and holds anything
  // else; kOutput when it cannot be written, or another process writes it. A last line that was cut
  // short is dropped.
  explicit PartFile(const std::filesystem::path& path) : name_(path.string()) {
    if (path.empty()) return;
    file_.emplace(path, "--resume");
    const std::string text = file_->read(kMostPartBytes);
    is_empty_ = text.empty();
    if (!is_empty_) read(text);
  }

  const Json* find(const Json& part) const {
    const auto found = results_.find(part.dump());
    return found == results_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return results_.size(); }
  // On return the part is in the file. Errors: kOutput.
  void add(const Json& part, Json result) {
    if (file_) {
      const std::string line = Json(Json::Object{{"part", part}, {"result", result}}).dump() + "\n";
      file_->append((is_empty_ ? header() + "\n" : "") + line);
      is_empty_ = false;
    }
    results_[part.dump()] = std::move(result);
  }

 private:
  static std::string header() { return Json(Json::Object{{"schema", kPartsSchema}}).dump(); }

  void read(std::string_view text) {
    const std::size_t first_end = std::min(text.find('\n'), text.size());
    if (text.substr(0, first_end) != header()) {
      refuse("it does not begin with the line of such a file");
    }
    if (first_end == text.size()) return file_->append("\n");
    int number = 1;
    for (std::size_t begin = first_end + 1; begin < text.size(); ++number) {
      const std::size_t end = text.find('\n', begin);
      if (end == std::string_view::npos) {
        if (!text.substr(begin).starts_with("{\"part\":")) refuse("its last line is no part");
        log_warn("[--resume] {}: its last part was cut short and runs again", name_);
        return file_->cut(static_cast<std::int64_t>(begin));
      }
      read_line(text.substr(begin, end - begin), number + 1);
      begin = end + 1;
    }
  }
  void read_line(std::string_view line, int number) {
    try {
      const Json json = Json::parse(line, name_);
      check_members(json.at("result"), name_);
      results_[json.at("part").dump()] = json.at("result");
    } catch (const std::exception&) {
      refuse(fmt::format("line {} is no finished part", number));
    }
  }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorCode::kInput, name_,
                fmt::format("it holds no finished parts of a command: {}", reason),
                "name another file, or one that does not exist yet");
  }

  std::string name_;
  std::optional<LockedFile> file_;
  bool is_empty_ = false;
  std::map<std::string, Json> results_;  // by the text of their part
};

// --- the run -------------------------------------------------------------------------------------

// A request of several cells, as its parts.
class PartRun {
 public:
  PartRun(const Command& command, const PartOptions& options, std::span<const std::string> words)
      : command_(command),
        options_(options),
        words_(words.begin(), words.end()),
        output_(*command.options.output()),
        division_(divide(with_lists(command, bare(words)), command.divided)),
        environment_(capture_environment(words, 1)),
        file_(options.resume) {}

  int run() {
    probe_output(output_);
    check_files();
    announce();
    const bool is_whole = options_.processes > 1 ? run_in_processes() : run_here();
    const std::size_t done = write();
    if (is_whole) return status_;
    log_warn("stopped by a signal after {} of {} parts{}", done, division_.parts.size(),
             options_.resume.empty() ? "; with --resume FILE a grid can go on" : "");
    return stopped_;
  }

 private:
  // The request without what concerns all parts together.
  static Request bare(std::span<const std::string> words) {
    Request out(words);
    for (const char* flag :
         {"--processes", "--resume", "--output", "--overwrite", "--columns", "--all", "--format"}) {
      out.drop(flag);
    }
    out.set("--format", "json");
    return out;
  }

  // Lists that the command has by itself are divided, too.
  static Request with_lists(const Command& command, Request request) {
    for (const std::string& flag : command.divided) {
      const Option* option = command.options.find(flag);
      if (option == nullptr || request.has(flag)) continue;
      if (option->default_text.find(',') != std::string::npos) {
        request.set(flag, option->default_text);
      }
    }
    return request;
  }

  // All that a part's numbers depend on, apart from the machine.
  Json key(std::size_t part, int process) const {
    Json words = Json::array();
    for (const std::string& word : division_.parts[part].sorted_words()) words.push_back(word);
    Json out = Json::Object{{"words", std::move(words)}, {"tool", environment_.at("tool")}};
    if (const Json* file = environment_.find("tuning_file")) out["tuning_file"] = *file;
    if (options_.processes > 1) out["process"] = process;
    return out;
  }

  void check_files() const {
    for (const Option& option : command_.options.options()) {
      if (!option.names_one_file || division_.parts.size() == 1) continue;
      if (!division_.parts.front().has(option.flag)) continue;
      throw Error(ErrorCode::kUsage, option.flag,
                  fmt::format("{} cells would write the same file", division_.parts.size()),
                  "give one value of each list, or leave it out");
    }
  }

  std::size_t count() const {
    return division_.parts.size() * static_cast<std::size_t>(options_.processes);
  }
  void announce() {
    std::size_t known = 0;
    for (std::size_t part = 0; part < division_.parts.size(); ++part) {
      for (int process = 0; process < options_.processes; ++process) {
        known += file_.find(key(part, process)) != nullptr ? 1 : 0;
      }
    }
    for (std::size_t i = known; i < count(); ++i) left_.plan(1);
    if (file_.size() == 0) return;
    log_info("[--resume] {}: {} of {} parts are there", options_.resume.string(), known, count());
  }
  std::string title(std::size_t part) {
    return fmt::format("{}/{}  {}{}  ", ++at_, count(), spaced(left_.text()),
                       division_.label(part));
  }

  // Runs each part in this process; false: a signal came.
  bool run_here() {
    for (std::size_t part = 0; part < division_.parts.size(); ++part) {
      if (file_.find(key(part, 0)) != nullptr) continue;
      left_.begin(1);
      const ProgressPrefix prefix(title(part));
      std::optional<Json> result = result_here(division_.parts[part]);
      if (!result) return false;
      left_.reach(1);
      file_.add(key(part, 0), *std::move(result));
    }
    return true;
  }

  std::optional<Json> result_here(const Request& part) {
    const Words words = part.words();
    parse_arguments(all_commands(), words);
    CapturedResult captured;
    int status = 0;
    try {
      status = command_.run_whole(words);
    } catch (const Error& error) {
      // The row of the cell tells that it ran out of memory.
      if (error.code() != ErrorCode::kOutOfMemory || !captured.result()) throw;
      status = division_.parts.size() > 1 ? 0 : exit_code(error.code());
      if (status != 0) last_words_ = error;
    }
    constexpr int kSignalled = 128;
    if (status > kSignalled) return stopped_ = status, std::nullopt;
    status_ = std::max(status_, status);
    return Json::parse(to_string(captured.result().value(), Format::kJson), command_.name);
  }

  // Every process runs each part once before the next one begins, in an order drawn by lot: what
  // changes on the machine meets all parts alike. False: a signal came.
  bool run_in_processes() {
    const StopSignal stop("the rows measured so far are written");
    const std::uint64_t seed = std::random_device()();
    const CounterRng lot(seed, "parts");
    ProgressLine progress;
    std::uint64_t drawn = 0;
    for (int process = 0; process < options_.processes; ++process) {
      std::vector<std::size_t> order(division_.parts.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (std::size_t left = order.size(); left > 1; --left) {
        std::swap(order[left - 1], order[lot.below(drawn++, left)]);
      }
      for (const std::size_t part : order) {
        if (file_.find(key(part, process)) != nullptr) continue;
        left_.begin(1);
        progress.update(title(part) + fmt::format("process {}", process + 1));
        std::optional<Json> result = result_of_process(division_.parts[part], stop);
        if (!result) return stopped_ = stop.exit_status(), false;
        left_.reach(1);
        file_.add(key(part, process), *std::move(result));
      }
    }
    return true;
  }

  static std::optional<Json> result_of_process(const Request& part, const StopSignal& stop) {
    if (stop.requested()) return {};
    try {
      Json out = result_in_new_process(part, "--processes");
      if (stop.requested()) return {};  // it was passed on
      return out;
    } catch (const Error&) {
      if (stop.requested()) return {};
      throw;
    }
  }

  // Writes the parts that are whole, and returns how many they are.
  std::size_t write() {
    std::vector<PartResult> results;
    for (std::size_t part = 0; part < division_.parts.size(); ++part) {
      std::vector<Json> of_processes;
      for (int process = 0; process < options_.processes; ++process) {
        if (const Json* result = file_.find(key(part, process))) of_processes.push_back(*result);
      }
      if (std::ssize(of_processes) < options_.processes) continue;
      results.push_back({command_.name, division_.label(part),
                         of_processes.size() > 1 ? merged_result(of_processes, "--processes")
                                                 : std::move(of_processes[0])});
    }
    if (results.empty()) return 0;
    std::vector<std::string> divided;
    for (const std::string& flag : division_.flags) divided.push_back(column_of_flag(flag));
    Document all = merged(results, divided);
    all.environment["command_line"] = environment_.at("command_line");
    write_tables(output_, all.schema, all.environment, std::move(all.tables));
    if (last_words_) throw *last_words_;
    return results.size();
  }

  const Command& command_;
  const PartOptions& options_;
  const Words words_;
  const OutputOptions output_;  // a copy: each part reads its own
  const Division division_;
  const Json environment_;
  PartFile file_;
  RemainingTime left_;
  std::size_t at_ = 0;
  int status_ = 0, stopped_ = 0;
  std::optional<Error> last_words_;  // of an only part that ran out of memory
};

void check_parts(const Command& command, const Request& request) {
  if (processes() != nullptr) {
    throw Error(ErrorCode::kUsage, request.has("--resume") ? "--resume" : "--processes",
                "several processes share this run", "leave it out");
  }
  for (const Option& option : command.options.options()) {
    if (!option.is_of_all_cells || !request.has(option.flag)) continue;
    throw Error(ErrorCode::kUsage, option.flag,
                fmt::format("it is of all cells together, which {} runs one by one",
                            request.has("--resume") ? "--resume" : "--processes"),
                "leave one out");
  }
  const auto file = request.value("--resume"), output = request.value("--output");
  if (!file) return;
  const NamedPath paths[] = {{"--resume", *file}, {"--output", output.value_or("")}};
  check_apart({}, paths);
}

}  // namespace

Json result_in_new_process(Request request, const std::string& where) {
  request.set("--format", "json");
  const ProcessResult process = run_self(request.words());
  if (process.status != 0 && process.status != exit_code(ErrorCode::kOutOfMemory)) {
    throw Error(ErrorCode::kFailed, where,
                fmt::format("a process of its own ended with status {}: {}", process.status,
                            last_line(process.err)));
  }
  return Json::parse(process.out, where);
}

void add_parts(Command& command) {
  const auto options = std::make_shared<PartOptions>();
  OptionSet& set = command.options;
  set.group("Cell by cell");
  set.integer(
      "--processes", options->processes, {1, 1000},
      "measure each cell in so many processes, all cells in turns: what a new process alone "
      "changes is then part of the noise (compare)");
  set.path(
      "--resume", "FILE", options->resume,
      "keep each cell here once it is done, and go on with those that are missing (JSON lines)");
  command.run_whole = std::move(command.run);
  if (command.plan) {
    command.plan = [options, plan_once = std::move(command.plan)] {
      JobPlan out = plan_once();
      out.steps *= options->processes;
      out.seconds *= options->processes;
      return out;
    };
  }
  // The command is looked up by its name: this one is moved to where all of them are.
  command.run = [options, name = command.name](std::span<const std::string> arguments) {
    const Command& self = *std::ranges::find(all_commands(), name, &Command::name);
    if (!options->is_used()) return self.run_whole(arguments);
    check_parts(self, Request(arguments));
    return PartRun(self, *options, arguments).run();
  };
}

}  // namespace tracestep::cli
