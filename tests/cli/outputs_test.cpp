// No command writes over a file that it reads, over another of its outputs, or without being told
// to over what others wrote; and where outputs go that are no files.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "base/directory.h"
#include "base/own_file.h"
#include "cli/planted_calibration.h"
#include "cli/run_binary.h"
#include "lab/predict/history.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

constexpr const char* kKept = "{\"kept\": 1}\n";

class OutputsTest : public ::testing::Test {
 protected:
  // Refused before anything happens, with both flags named; the file stays as it is.
  void expect_apart(const std::string& arguments, std::string_view flag) {
    const ProgramRun run = run_tracestep(words_of(arguments), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 2) << arguments << "\n" << run.err;
    EXPECT_TRUE(contains(run.err, flag)) << run.err;
    EXPECT_TRUE(contains(run.err, "name another file")) << run.err;
    EXPECT_EQ(content_of(folder_ / "q"), kKept) << arguments;
  }

  TempFolder folder_;
};

TEST_F(OutputsTest, AnInputOrAnotherOutputIsNeverWrittenOver) {
  folder_.write("q", kKept);
  folder_.write("other", "{}");
  expect_apart("bench --device null --resume q --output q", "--resume");
  expect_apart("compare q other --output q", "of A");
  expect_apart("compare other q --output q", "of B");
  expect_apart("explain warm-up --from q --output q", "--from");
  expect_apart("memory --fingerprint q --output q", "--fingerprint");
  expect_apart("memory --predict --snapshot q --output q", "--snapshot");
  expect_apart("memory --predict --snapshot q --snapshot-json q", "--snapshot");
  expect_apart("profile --trace q --output q", "--trace");
}

TEST_F(OutputsTest, LinksAndOtherSpellingsAreTheSameFile) {
  folder_.write("q", kKept);
  std::filesystem::create_symlink("q", folder_ / "link");
  std::filesystem::create_symlink("new", folder_ / "dangling");
  std::filesystem::create_directory(folder_ / "sub");
  expect_apart("bench --device null --resume q --output link", "--resume");
  expect_apart("bench --device null --resume link --output sub/../q", "--resume");
  expect_apart("bench --device null --resume new --output ./new", "--resume");
  expect_apart("bench --device null --resume dangling --output new", "--resume");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

// Neither what was asked for nor what is made on the way to it.
TEST_F(OutputsTest, WhatIsRefusedLeavesNothing) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  const TempFolder inputs;
  const std::string train =
      "train --text " + inputs.write("text.txt", text).string() +
      " --steps 1 --batch 2 --threads 1" +
      " --d-model 32 --d-ff 64 --layers 1 --heads 2 --checkpoint a/run --log log --save w";
  const std::pair<std::string, int> refused[] = {
      {train + " --context 4096", 3},
      {"bench --size nosuch --resume parts --pictures p/q --output o", 2},
      {"bench --size tiny --heads 3 --resume parts --pictures p --output o", 2},
      {"bench --size tiny --heads 3 --processes 2 --resume parts", 2},
      {"precision --part steps --size tiny --device cuda:99 --resume parts --pictures p", 6},
      {"memory --device cuda:99 --snapshot s --snapshot-json j --pictures p", 6},
      {"profile --device cuda:99 --trace t --pictures p", 6},
      {"study --course --mine missing --output-dir a/b --pictures p", 3},
      {"export " + inputs.path().string() + " a/b/c", 3},
      {"launch -n 2 -- " + train + " --context 4096 --parallel dp=2", 3}};
  for (const auto& [arguments, status] : refused) {
    const ProgramRun run = run_tracestep(words_of(arguments), {.folder = folder_.path()});
    EXPECT_EQ(run.status, status) << arguments << "\n" << run.err;
    std::string left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      left += entry.path().string() + " ";
    }
    EXPECT_EQ(left, "") << arguments;
  }
}

// A file's ending says what is in it.
TEST_F(OutputsTest, TheEndingOfAFileDecidesItsFormat) {
  const std::string models = "models --output ";
  const auto written = [&](const std::string& rest) {
    const std::string name = rest.substr(0, rest.find(' '));
    const ProgramRun run = run_tracestep(words_of(models + rest), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 0) << rest << "\n" << run.err;
    const std::string text = content_of(folder_ / name);
    std::filesystem::remove(folder_ / name);
    return text;
  };
  // The environment holds the command line, which differs.
  const auto rows = [](const std::string& text) {
    return Json::parse(text, "models").at("rows").dump();
  };
  EXPECT_EQ(rows(written("a.json")), rows(written("a --format json")));
  EXPECT_EQ(rows(written("a.JSON")), rows(written("a.txt --format json")));
  for (const auto& [ending, format] :
       {std::pair("txt", "text"), std::pair("md", "markdown"), std::pair("csv", "csv"),
        std::pair("tex", "latex"), std::pair("typ", "typst")}) {
    EXPECT_EQ(written(fmt::format("a.{}", ending)), written(fmt::format("a --format {}", format)));
  }
  EXPECT_EQ(written("a"), written("a.dat --format text"));
}

TEST_F(OutputsTest, AnEndingThatSaysNothingOrSomethingElseIsRefused) {
  const auto error_of = [&](const std::string& command) {
    const ProgramRun run = run_tracestep(words_of(command), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 2) << command;
    return run.err;
  };
  EXPECT_TRUE(contains(error_of("models --output a.csv --format json"),
                       "[--output] a.csv ends as csv does, and --format says json"));
  EXPECT_TRUE(contains(error_of("show --size tiny --output program.json"),
                       "[--output] a program is plain text"));
  const Json listing =
      Json::parse(run_tracestep(words_of("show --docs cli --format json")).out, "commands");
  std::size_t asked = 0;
  for (const Json& command : listing.at("commands").items()) {
    const bool has_output = std::ranges::any_of(
        command.at("options").items(),
        [](const Json& option) { return option.at("flag").as_string() == "--output"; });
    if (!has_output) continue;
    ++asked;
    const std::string name = command.at("name").as_string();
    EXPECT_TRUE(contains(error_of(name + " --output a.xlsx"),
                         "[--output] a.xlsx: the ending .xlsx stands for no format; end it in"))
        << name;
  }
  EXPECT_GT(asked, 15u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.xlsx"));
}

// A message that named another flag than the one used would send its reader there.
TEST_F(OutputsTest, AFileThatCannotBeWrittenIsNamedWithoutAFlag) {
  for (const char* flag : {"--snapshot", "--output"}) {
    const ProgramRun run = run_tracestep(
        words_of(fmt::format("memory --predict --size tiny --context 8 {} /dev/full", flag)));
    EXPECT_EQ(run.status, 5) << run.err;
    EXPECT_TRUE(contains(run.err, "tracestep: [file] /dev/full cannot be written")) << run.err;
  }
}

// An output of a command: a second run replaces the file that it wrote itself, and a file of
// someone else only where it is told to.
struct Output {
  std::string command, flag, file;
};

const std::string kTiny = " --d-model 8 --d-ff 8 --layers 1 --heads 2 --batch 2 --context 16";
const std::string kMemory = "memory --predict --vocab 256" + kTiny;
const std::string kProfile =
    "profile --vocab 256 --warmup 0 --plain-steps 1 --steps 1 --no-ceilings --threads 1" + kTiny;
const std::string kText = " --text text.txt --tokenizer bytes --threads 1" + kTiny;

std::vector<Output> outputs() {
  std::vector<Output> out;
  for (const char* format : {"text", "markdown", "csv", "json", "latex", "typst"}) {
    out.push_back({fmt::format("{} --format {}", kMemory, format), "--output", "result"});
  }
  for (const char* docs : {"cli", "ops", "claims", "man"}) {
    out.push_back({fmt::format("show --docs {}", docs), "--output", "page"});
  }
  out.push_back({"version --format csv --columns tool", "--output", "names"});
  out.push_back({"show --size tiny", "--output", "program"});
  out.push_back({"show --size tiny --diff start decompose", "--output", "difference"});
  out.push_back({kMemory, "--snapshot", "snapshot.pickle"});
  out.push_back({kMemory, "--snapshot-json", "snapshot.json"});
  out.push_back({kProfile + " --mode step", "--trace", "trace.json"});
  out.push_back({kProfile + " --mode step", "--trace", "trace.json.gz"});
  out.push_back({"train --steps 1" + kText, "--log", "log.jsonl"});
  out.push_back({"train --steps 1" + kText, "--save", "w.safetensors"});
  out.push_back(
      {"train --steps 1" + kText + " --save v.safetensors", "--save", "v.safetensors.tokenizer"});
  out.push_back({"eval --batches 1" + kText, "--logits", "logits.safetensors"});
  out.push_back({"eval --batches 1" + kText, "--gradients", "gradients.safetensors"});
  return out;
}

TEST_F(OutputsTest, ARunReplacesItsOwnOutputAndThatOfOthersOnlyWhenItIsToldTo) {
  folder_.write("text.txt", std::string(1000, 'x'));
  for (const auto& [command, flag, file] : outputs()) {
    SCOPED_TRACE(command + " " + flag);
    const bool is_beside = file.ends_with(".tokenizer");
    const std::string line = is_beside ? command : fmt::format("{} {} {}", command, flag, file);
    const auto run = [&](const std::string& more) {
      return run_tracestep(words_of(line + more), {.folder = folder_.path()});
    };
    EXPECT_EQ(run("").status, 0);
    EXPECT_EQ(run("").status, 0);
    folder_.write(file, "my notes\n");
    const ProgramRun refused = run("");
    EXPECT_EQ(refused.status, 5) << refused.err;
    EXPECT_TRUE(contains(refused.err, fmt::format("[{}] {} would be replaced", flag, file)));
    EXPECT_TRUE(contains(refused.err, "--overwrite")) << refused.err;
    EXPECT_TRUE(refused.out.empty()) << refused.out;
    EXPECT_EQ(content_of(folder_ / file), "my notes\n");
    EXPECT_EQ(run(" --overwrite").status, 0);
    EXPECT_NE(content_of(folder_ / file), "my notes\n");
    EXPECT_EQ(run("").status, 0);
  }
}

// As torch.profiler begins it.
TEST_F(OutputsTest, TheTraceOfAnotherProfilerIsKeptBeforeAnythingIsMeasured) {
  const std::string trace =
      "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n  ],\n  \"record_shapes\": 1,\n"
      "  \"traceEvents\": [\n  {\"ph\": \"X\", \"name\": \"aten::mm\"}]}\n";
  folder_.write("torch.json", trace);
  // A profile of this size takes minutes.
  const ProgramRun run = run_tracestep(words_of("profile --size xl --mode step --trace torch.json"),
                                       {.folder = folder_.path()});
  EXPECT_EQ(run.status, 5) << run.err;
  EXPECT_TRUE(contains(run.err, "[--trace] torch.json would be replaced")) << run.err;
  EXPECT_EQ(content_of(folder_ / "torch.json"), trace);
}

// With several steps each has a file of its own.
TEST_F(OutputsTest, EachTraceOfAGridIsLookedAtFirst) {
  const std::string grid = kProfile + " --mode forward,step --trace t.json";
  ASSERT_EQ(run_tracestep(words_of(grid), {.folder = folder_.path()}).status, 0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_EQ(names.size(), 2u);
  for (const std::string& name : names) {
    folder_.write(name, "mine");
    const ProgramRun run = run_tracestep(words_of(grid), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 5) << run.err;
    EXPECT_TRUE(contains(run.err, name + " would be replaced")) << run.err;
    EXPECT_FALSE(contains(run.err, "is in")) << run.err;
    EXPECT_EQ(content_of(folder_ / name), "mine");
    std::filesystem::remove(folder_ / name);
  }
}

TEST_F(OutputsTest, PicturesOfOthersStay) {
  const std::string draw = kMemory + " --pictures drawn";
  ASSERT_EQ(run_tracestep(words_of(draw), {.folder = folder_.path()}).status, 0);
  ASSERT_EQ(run_tracestep(words_of(draw), {.folder = folder_.path()}).status, 0);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "drawn")) {
    const std::string drawn = content_of(entry.path());
    EXPECT_TRUE(is_own(drawn, {})) << entry.path();
    std::ofstream(entry.path()) << "mine";
    const ProgramRun run = run_tracestep(words_of(draw), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 5) << run.err;
    EXPECT_EQ(content_of(entry.path()), "mine");
    std::ofstream(entry.path(), std::ios::binary) << drawn;
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST_F(OutputsTest, WhatOtherCommandsKeepIsOurs) {
  EXPECT_TRUE(is_own(text_of(planted_calibration(Json::object())), {}));
  EXPECT_TRUE(is_own(line_of(CheckedCell{}), {}));
}

TEST_F(OutputsTest, ATokenizerOfPiecesHasItsMarkOnce) {
  if (!has_bpe()) GTEST_SKIP() << "no SentencePiece";
  // The mark stays when such a tokenizer is read and saved again, and is there once.
  const auto path = folder_ / "bpe";
  train_bpe("some text that is long enough to be cut into pieces", 300)->save(path);
  const std::string saved = content_of(path);
  EXPECT_TRUE(saved.ends_with(kTokenizerMark));
  load_tokenizer(path)->save(path);
  EXPECT_EQ(content_of(path), saved);
}

TEST_F(OutputsTest, AResultMayGoToStdoutOrNowhere) {
  const auto run = [&](const std::string& arguments) {
    return run_tracestep(words_of(kMemory + arguments), {.folder = folder_.path()});
  };
  const std::string plain = run(" --format csv").out;
  for (const char* path : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const ProgramRun to_stdout = run(fmt::format(" --format csv --output {}", path));
    EXPECT_EQ(to_stdout.status, 0) << to_stdout.err;
    EXPECT_TRUE(contains(to_stdout.out, plain.substr(plain.find(',')))) << path;
  }
  const ProgramRun nowhere =
      run(" --output /dev/null --snapshot /dev/null --snapshot-json /dev/null");
  EXPECT_EQ(nowhere.status, 0) << nowhere.err;
  EXPECT_EQ(nowhere.out, "");
  const ProgramRun snapshot = run(" --output /dev/null --snapshot-json -");
  EXPECT_EQ(snapshot.status, 0) << snapshot.err;
  EXPECT_TRUE(snapshot.out.starts_with("{\"schema\":\"tracestep.snapshot/1\"")) << snapshot.out;
  EXPECT_EQ(run_tracestep(words_of(kProfile + " --mode forward,step --trace /dev/null"),
                          {.folder = folder_.path()})
                .status,
            0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(OutputsTest, ATrainingLogsToStreamsAndSavesToThem) {
  folder_.write("text.txt", std::string(1000, 'x'));
  const auto run = [&](const std::string& arguments) {
    return run_tracestep(words_of("train --steps 2" + kText + arguments),
                         {.folder = folder_.path()});
  };
  const ProgramRun nowhere = run(" --log /dev/null --save /dev/null --output /dev/null");
  EXPECT_EQ(nowhere.status, 0) << nowhere.err;
  const ProgramRun to_stdout = run(" --log - --output /dev/null");
  EXPECT_EQ(to_stdout.status, 0) << to_stdout.err;
  EXPECT_TRUE(to_stdout.out.starts_with("{\"step\":1,")) << to_stdout.out;
  EXPECT_TRUE(contains(to_stdout.out, "\n{\"step\":2,"));
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  const FileHandle reader(::open((folder_ / "fifo").c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_EQ(run(" --log fifo").status, 0);
  std::string lines(1000, '\0');
  lines.resize(static_cast<std::size_t>(
      std::max<ssize_t>(0, ::read(reader.get(), lines.data(), lines.size()))));
  EXPECT_TRUE(contains(lines, "{\"step\":2,"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(OutputsTest, AFileWithTheNameOfAStreamCanStillBeNamed) {
  ASSERT_EQ(run_tracestep(words_of(kMemory + " --output ./-"), {.folder = folder_.path()}).status,
            0);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "-"));
}

TEST_F(OutputsTest, AResultKeepsThePermissionsOfTheOneItReplaces) {
  const std::string command = kMemory + " --format json --output p.json";
  ASSERT_EQ(run_tracestep(words_of(command), {.folder = folder_.path()}).status, 0);
  std::filesystem::permissions(folder_ / "p.json", std::filesystem::perms(0600));
  ASSERT_EQ(run_tracestep(words_of(command), {.folder = folder_.path()}).status, 0);
  EXPECT_EQ(std::filesystem::status(folder_ / "p.json").permissions(),
            std::filesystem::perms(0600));
}

TEST_F(OutputsTest, AFileOfAnotherIsKeptBeforeAStudyBegins) {
  for (const std::string name : {"study.md", "study.html", "train.jsonl"}) {
    folder_.write(name, "# My study\n");
    const ProgramRun run =
        run_tracestep(words_of("study --output-dir ."), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 5) << run.err;
    EXPECT_TRUE(contains(run.err, fmt::format("[--output-dir] ./{} would be replaced", name)));
    std::filesystem::remove(folder_ / name);
  }
}

TEST_F(OutputsTest, AStudyWhosePagesAreOneFileIsRefused) {
  folder_.write("q", kKept);
  std::filesystem::create_symlink("q", folder_ / "study.md");
  std::filesystem::create_symlink("q", folder_ / "study.json");
  expect_apart("study --quick --output-dir .", "--output-dir");
}

}  // namespace
}  // namespace tracestep
