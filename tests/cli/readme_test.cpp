// README.md shows what the program prints: its commands run, in order, and give the lines below
// them.
#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

struct Sample {
  std::string command;             // without "$ tracestep "
  std::vector<std::string> lines;  // of its output; "…" stands for lines that are left out
  bool is_measured = false;        // its numbers are those of another run
};

// The commands of all blocks ```console, and of those ```console measured.
std::vector<Sample> samples_of(const std::filesystem::path& page) {
  constexpr std::string_view kPrompt = "$ tracestep ";
  std::ifstream in(page);
  std::vector<Sample> out;
  bool is_inside = false, is_measured = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      is_inside = !is_inside && line.starts_with("```console");
      is_measured = line == "```console measured";
    } else if (is_inside && line.starts_with(kPrompt)) {
      out.push_back({line.substr(kPrompt.size()), {}, is_measured});
    } else if (is_inside && !line.empty()) {
      out.back().lines.push_back(line);
    }
  }
  return out;
}

// Replaces every number by "#", with its unit where that is one of time, and gaps by one space.
std::string without_numbers(const std::string& line) {
  const std::string marked =
      std::regex_replace(line, std::regex("[0-9][0-9,.]*( (µs|ms|s)\\b)?"), "#");
  return std::regex_replace(marked, std::regex(" +|-+"), " ");
}

// Words of a measured line may differ as well (a verdict): what stands first is the same.
std::string first_word(const std::string& line) {
  return line.substr(0, line.find(' '));
}

TEST(ReadmeTest, EveryCommandRunsAndPrintsWhatStandsBelowIt) {
  const std::filesystem::path page = testing::source_folder() / "README.md";
  const TempFolder folder;
  std::filesystem::copy_file(page, folder / "README.md");
  const std::vector<Sample> samples = samples_of(page);
  EXPECT_GE(samples.size(), 3u);
  for (const Sample& sample : samples) {
    const ProgramRun run = run_tracestep(words_of(sample.command), {.folder = folder.path()});
    EXPECT_EQ(run.status, 0) << sample.command << "\n" << run.err;
    std::istringstream in(run.out);
    std::vector<std::string> printed;
    for (std::string line; std::getline(in, line);) printed.push_back(line);
    std::size_t from = 0;
    for (std::size_t i = 0; i < sample.lines.size(); ++i) {
      const std::string& wanted = sample.lines[i];
      if (wanted == "…") continue;
      const auto fits = [&](const std::string& line) {
        if (!sample.is_measured) return line == wanted;
        // A verdict depends on the machine; it is there, with how often it was measured.
        constexpr std::string_view kVerdict = " rounds)";
        if (wanted.find(kVerdict) != wanted.npos) return line.find(kVerdict) != line.npos;
        // The title and the header as they are (behind an answer may stand that it is noisy), rows
        // by their names.
        return i < 2 ? without_numbers(line).starts_with(without_numbers(wanted))
                     : first_word(line) == first_word(wanted) ||
                           without_numbers(line) == without_numbers(wanted);
      };
      const auto found =
          std::find_if(printed.begin() + static_cast<std::ptrdiff_t>(from), printed.end(), fits);
      ASSERT_NE(found, printed.end()) << sample.command << "\nprints no line\n"
                                      << wanted << "\nbut\n"
                                      << run.out;
      from = static_cast<std::size_t>(found - printed.begin()) + 1;
    }
  }
}

TEST(ReadmeTest, ItsPictureIsDrawnByTheCommandBesideIt) {
  const std::string page = content_of(testing::source_folder() / "README.md");
  std::smatch command;
  ASSERT_TRUE(std::regex_search(page, command,
                                std::regex("`tracestep (memory [^`]*) --pictures docs/pictures`")));
  const TempFolder folder;
  const ProgramRun run =
      run_tracestep(words_of(command[1].str() + " --pictures " + folder.path().string()));
  ASSERT_EQ(run.status, 0) << run.err;
  int same = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    same += content_of(entry.path()) ==
            content_of(testing::source_folder() / "docs/pictures/memory-timeline.svg");
  }
  EXPECT_EQ(same, 1);
}

TEST(ReadmeTest, TheCommandsOfItsTableAreThere) {
  const std::string page = content_of(testing::source_folder() / "README.md");
  const std::string table = page.substr(page.find("## From task to command"));
  std::istringstream lines(table.substr(0, table.find("\n\n`tracestep help")));
  const std::regex flag("--[a-z-]+"), code("`([a-z]+)( [^`]*)?`");
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string cell = line.substr(std::min(line.find('|', 1), line.size()));
    for (std::sregex_iterator it(cell.begin(), cell.end(), code), end; it != end; ++it) {
      const std::string name = (*it)[1], words = (*it)[2];
      const std::string arguments = words.substr(0, words.find(" -- "));  // then another's
      const auto all = cli::all_commands();
      const auto found = std::ranges::find(all, name, &cli::Command::name);
      ASSERT_NE(found, all.end()) << name;
      ++commands;
      for (std::sregex_iterator f(arguments.begin(), arguments.end(), flag); f != end; ++f) {
        EXPECT_NE(found->options.find(f->str()), nullptr) << name << f->str();
      }
    }
  }
  EXPECT_GT(commands, 15);
}

}  // namespace
}  // namespace tracestep
