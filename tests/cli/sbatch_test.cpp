// Job scripts of --sbatch, without Slurm: their requests, their words, and what comes out when a
// program in the place of sbatch runs them at once.
#include <cstdlib>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/shell_words.h"
#include "cli/command.h"
#include "cli/jobs.h"
#include "cli/planted_calibration.h"
#include "cli/request.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 --batch 2 --threads 1";
const std::string kGrid =
    "bench --device null --warmup 0 --steps 2 --context 8,16,32 --mode inference,step" + kModel;

// Characters that a name must keep on its way through two shells.
constexpr const char* kOddName = "it's \"odd\" $HOME `x` \\ ; é";

// Runs the job's tasks one after the other, but for the one called $FAIL. Like Slurm by default, it
// takes no index above 1000.
constexpr const char* kSbatch = R"(#!/bin/bash
printf '%s\n' "$*" >> calls
script=${!#}
array=$(sed -n 's/^#SBATCH --array=//p' "$script")
if [[ ${array##*-} -gt 1000 ]]; then exit 1; fi
if [ -z "$array" ]; then bash "$script" >> log/merge 2>&1; fi
for part in ${array//,/ }; do
  for task in $(seq "${part%-*}" "${part#*-}"); do
    if [ "$task" = "$FAIL" ]; then continue; fi
    SLURM_ARRAY_TASK_ID=$task bash "$script" >> log/tasks 2>&1
  done
done
echo '7;cluster'
)";

class SbatchTest : public ::testing::Test {
 protected:
  SbatchTest() {
    const auto sbatch = folder_.write("bin/sbatch", kSbatch);
    std::filesystem::permissions(sbatch, std::filesystem::perms::all);
    std::filesystem::create_directory(work_);
  }

  ProgramRun tracestep(const std::string& command) const {
    // Without a cache there is no calibration of this machine.
    return run_tracestep(words_of(command), {.folder = work_,
                                             .environment = {"TRACESTEP_KERNEL_CACHE=" +
                                                             (folder_ / "cache").string()}});
  }
  // Runs the command with `--sbatch jobs`.
  void write_jobs(const std::string& command) const {
    const ProgramRun run = tracestep(command + " --sbatch jobs");
    ASSERT_EQ(run.status, 0) << run.err;
    for (const auto& file : std::filesystem::directory_iterator(work_ / "jobs")) {
      if (file.path().extension() != ".sh") continue;
      EXPECT_EQ(shell("bash -n " + shell_quoted(file.path().string())), 0) << file.path();
    }
  }
  int submit(const std::string& variables = "") const {
    return shell(fmt::format("{} PATH={}:$PATH bash {} --partition=all", variables,
                             shell_quoted((folder_ / "bin").string()),
                             shell_quoted((work_ / "jobs" / "submit.sh").string())));
  }
  std::string job(const std::string& name) const { return content_of(work_ / "jobs" / name); }
  Json result() const { return Json::parse(job("result.json"), "result.json"); }

  TempFolder folder_;
  const std::filesystem::path work_ = folder_ / kOddName;

 private:
  static int shell(const std::string& command) {
    return std::system(("{ " + command + "; } > /dev/null 2>&1").c_str());
  }
};

// Values that tell rows apart and do not depend on the clock.
std::vector<std::string> identities(const Json& result) {
  std::vector<std::string> out;
  for (const Json& row : result.at("rows").items()) {
    std::string text;
    for (const char* column :
         {"cell", "status", "peak_bytes", "predicted_peak_bytes", "launches"}) {
      text += row.at(column).dump() + " ";
    }
    out.push_back(std::move(text));
  }
  return out;
}

TEST_F(SbatchTest, AGridIsAnArrayWhoseMergeIsTheGrid) {
  write_jobs(kGrid);
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --array=0-5\n"));
  EXPECT_EQ(submit(), 0);
  EXPECT_THAT(job("calls"), HasSubstr("--parsable --partition=all tasks-1.sh\n"));
  EXPECT_THAT(job("calls"),
              HasSubstr("--parsable --partition=all --dependency=afterany:7 merge.sh\n"));
  const ProgramRun whole = tracestep(kGrid + " --format json");
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Json expected = Json::parse(whole.out, "whole");
  EXPECT_EQ(identities(result()), identities(expected));
  EXPECT_EQ(result().at("schema"), expected.at("schema"));
  EXPECT_THAT(result().at("environment").at("command_line").dump(),
              HasSubstr(R"("--context","8,16,32","--mode","inference,step")"));
}

// As everywhere, what stands in one word with its option is its value.
TEST_F(SbatchTest, AValueMayLookLikeAFlag) {
  write_jobs(kGrid + " --format=json --output=--sbatch");
  EXPECT_THAT(job("merge.sh"), HasSubstr("--format json --output=--sbatch\n"));
  EXPECT_THAT(job("tasks-1.sh"), Not(HasSubstr("--sbatch")));
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs("profile --size tiny --context 8 --trace=--context --output r.json --overwrite");
  EXPECT_THAT(job("tasks-1.sh"),
              HasSubstr("--context 8 --trace=--context --overwrite --cell step:0 ;;"));
  EXPECT_THAT(job("merge.sh"), HasSubstr("--overwrite --output r.json\n"));
}

// Slurm limits the index of a task, not only how many there are.
TEST_F(SbatchTest, AnArrayBeginsAtIndexZero) {
  std::string contexts = "1";
  for (int context = 2; context <= 1003; ++context) contexts += "," + std::to_string(context);
  write_jobs(
      "bench --device null --threads 1 --d-model 2 --d-ff 2 --layers 1 --heads 1 "
      "--vocab 2 --mode inference --context " +
      contexts);
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --array=0-999\n"));
  EXPECT_THAT(job("tasks-2.sh"), HasSubstr("#SBATCH --array=0-2\n"));
  EXPECT_THAT(job("tasks-2.sh"), HasSubstr("\ntasks=(1000 1001 1002)\n"));
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs("comm --device cuda --collective all_reduce,all_gather --ranks 2,4 --bytes 1MiB");
  EXPECT_THAT(job("tasks-2.sh"), HasSubstr("#SBATCH --array=0-1\n"));
  EXPECT_THAT(job("tasks-2.sh"), HasSubstr("\ntasks=(1 3)\n"));
}

// A shell in a step of srun, from which a job is submitted.
TEST_F(SbatchTest, ATaskIsNoRankOfTheStepThatSubmittedIt) {
  write_jobs("bench --device null --warmup 0 --steps 2 --context 8 --mode step" + kModel);
  EXPECT_EQ(submit("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_LOCALID=0 "
                   "SLURM_JOB_ID=3 SLURM_STEP_NODELIST=127.0.0.1 TRACESTEP_COMM_TIMEOUT=0.2"),
            0);
  EXPECT_EQ(result().at("rows").size(), 1u) << job("log/tasks");
}

TEST_F(SbatchTest, ATaskHasTheResultOfItsOwnRunAlone) {
  write_jobs(kGrid);
  folder_.write("bin/program",
                "#!/bin/bash\nfor file; do :; done\n"
                "case $file in */2.json) exit 4 ;; esac\ncp ../one \"$file\"\nexit 1\n");
  std::filesystem::permissions(folder_ / "bin/program", std::filesystem::perms::all);
  const ProgramRun one =
      tracestep("bench --device null --warmup 0 --steps 2 --context 8 --mode step" + kModel +
                " --format json");
  folder_.write("one", one.out);
  std::string script = job("tasks-1.sh");
  const std::size_t call = script.find("\n", script.find("rm -f \"$result\"")) + 1;
  script.replace(call, script.find(" \"$@\"", call) - call,
                 shell_quoted((folder_ / "bin/program").string()));
  folder_.write(std::string(kOddName) + "/jobs/tasks-1.sh", script);
  folder_.write(std::string(kOddName) + "/jobs/cells/2.json", one.out);
  EXPECT_EQ(submit(), 0);
  EXPECT_TRUE(cli::is_done(work_ / "jobs", 0)) << "a check objects, and the result says so";
  EXPECT_FALSE(cli::is_done(work_ / "jobs", 2))
      << "out of memory, with the result of an earlier run";
}

TEST_F(SbatchTest, ATaskThatFailedIsNamedAndRunsAgainAlone) {
  write_jobs(kGrid);
  EXPECT_EQ(submit("FAIL=4"), 0);
  EXPECT_EQ(result().at("rows").size(), 5u);
  EXPECT_THAT(job("log/merge"), HasSubstr("task 4 has no result: tracestep bench"));
  EXPECT_THAT(job("log/merge"), HasSubstr("1 of 6 tasks have no result"));
  const std::string first = job("cells/0.json");
  EXPECT_EQ(submit(), 0);
  EXPECT_EQ(result().at("rows").size(), 6u);
  EXPECT_EQ(job("cells/0.json"), first) << "a task that is done was measured again";
}

// Every command that measures, with its tasks: a cell, or those that are compared with each other.
TEST_F(SbatchTest, EveryCommandWithAPlanWritesScripts) {
  const std::pair<const char*, std::size_t> commands[] = {
      {"bench --size tiny --context 8,16", 2},
      {"profile --size tiny --mode step --precision fp32,bf16", 2},
      {"precision --size tiny --precision fp32,bf16 --context 8,16", 2},
      {"attention --context 8,16 --width 16,32 --mask causal,none", 4},
      {"compile --size tiny --context 8,16 --ops fused,primitive", 4},
      {"memory --size tiny,small --context 8 --precision fp32,bf16", 4},
      {"comm --collective all_reduce,all_gather --bytes 1KiB,2KiB,4KiB", 12},
      {"throughput --size tiny --context 8 --batch 1,2,4", 3},
      {"train --text . --size tiny --context 8", 1},
      {"study --quick", 1},
  };
  std::set<std::string> known, tried;
  for (const cli::Command& command : cli::all_commands()) {
    if (command.plan) known.insert(command.name);
  }
  folder_.write(std::string(kOddName) + "/text", "text");
  for (const auto& [command, tasks] : commands) {
    SCOPED_TRACE(command);
    write_jobs(command);
    EXPECT_EQ(cli::read_tasks(work_ / "jobs").cells.size(), tasks);
    tried.insert(words_of(command).front());
    std::filesystem::remove_all(work_ / "jobs");
  }
  EXPECT_EQ(tried, known);
}

TEST_F(SbatchTest, RequestsFollowFromPredictions) {
  write_jobs("bench --size small,xl --context 128 --mode step --device cuda --published H100");
  const std::string script = job("tasks-1.sh");
  EXPECT_THAT(script, HasSubstr("times are from published peaks of H100"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --gres=gpu:1\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --time=5\n"));
  const Json peaks = Json::parse(
      tracestep("predict --size small,xl --context 128 --mode step --device cuda --published H100 "
                "--batch 4 --precision fp32 --attention naive --executor eager --format json")
          .out,
      "predict");
  for (const Json& row : peaks.at("rows").items()) {
    EXPECT_THAT(script, HasSubstr("# peak " + format_bytes(row.at("peak_bytes").as_int())));
  }
  EXPECT_THAT(script, Not(HasSubstr("--published"))) << "it is for the requests alone";
}

// The card is the device of the jobs, and its memory their limit.
TEST_F(SbatchTest, ACardThatIsNamedIsWhatTheJobsRunOn) {
  const ProgramRun run = tracestep(
      "bench --size tiny,2.7B --context 2048 --batch 8 --mode step --published 4090 "
      "--sbatch jobs");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(job("tasks-1.sh"), AllOf(HasSubstr("--device cuda"), HasSubstr("--gres=gpu:1"),
                                       HasSubstr("times are from published peaks of RTX 4090")));
  EXPECT_THAT(run.err, HasSubstr("task 1 needs "));
  EXPECT_THAT(run.err, HasSubstr("of RTX 4090"));
  EXPECT_THAT(run.err, Not(HasSubstr("task 0 needs ")));
}

TEST_F(SbatchTest, APredictionKeepsTheCardThatItIsOf) {
  write_jobs("memory --predict --size tiny,small --published H100");
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("--published H100"));
}

TEST_F(SbatchTest, TheCalibrationOfANodeIsTakenOnAnotherMachine) {
  const Json identity = Json::Object{{"device", "cpu"}, {"cpu", "this machine lacks"}};
  folder_.write(std::string(kOddName) + "/node.json", text_of(planted_calibration(identity)));
  const std::string bench = "bench --size tiny --context 8,16 --mode step --threads 1";
  EXPECT_THAT(tracestep("predict --size tiny --calibration node.json").err,
              HasSubstr("it is of another device"));
  write_jobs(bench + " --calibration node.json");
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("# times: calibrated 2026-01-02T03:04:05Z\n"));
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --time="));
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs(bench + " --device cuda --published H100 --steps 1000000");
  EXPECT_THAT(job("tasks-1.sh"), Not(HasSubstr("#SBATCH --time=5\n"))) << "it follows the steps";
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs(bench);
  EXPECT_THAT(job("tasks-1.sh"), Not(HasSubstr("--time="))) << "no cache: nothing predicts";
}

TEST_F(SbatchTest, MemoryIsThePeakOfTheLargestTaskAndMore) {
  write_jobs("bench --size tiny --context 8,512 --mode step --threads 3");
  const Json peak = Json::parse(
      tracestep("memory --predict --size tiny --context 512 --threads 3 --format json").out,
      "peak");
  const std::int64_t bytes = peak.at("rows").items()[0].at("predicted_peak_bytes").as_int();
  const std::int64_t mib = 1024 + (bytes / 4 * 5 >> 20) + 1;
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr(fmt::format("#SBATCH --mem={}M\n", mib)));
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --cpus-per-task=3\n"));
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("export OMP_NUM_THREADS=3\n"));
}

// The script's variable is of the whole run: its ranks divide it.
TEST_F(SbatchTest, RanksShareTheCoresThatAreRequested) {
  const ProgramRun run = run_tracestep(
      words_of("bench --size tiny --context 8 --batch 4 --parallel dp=2 --sbatch jobs"),
      {.folder = work_, .environment = {"OMP_NUM_THREADS=8"}});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --cpus-per-task=4\n"));
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("export OMP_NUM_THREADS=8\n"));
}

TEST_F(SbatchTest, MemoryIsRequestedForTheText) {
  const std::string train = "train --text text --size tiny --context 8 --threads 1";
  const auto requested = [&](std::size_t bytes) {
    folder_.write(std::string(kOddName) + "/text", std::string(bytes, 'a'));
    write_jobs(train);
    const std::string script = job("tasks-1.sh");
    std::filesystem::remove_all(work_ / "jobs");
    return std::stoi(script.substr(script.find("--mem=") + 6));
  };
  EXPECT_NEAR(requested(9 << 20) - requested(1 << 20), 8 * 5 * 1.25, 1);
}

TEST_F(SbatchTest, RanksAreTasksOfSrun) {
  folder_.write(std::string(kOddName) + "/text", std::string(4000, 'a'));
  write_jobs(
      "train --text text --size tiny --context 8 --parallel dp=4 --threads 1 "
      "--checkpoint run --checkpoint-every 5");
  const std::string script = job("tasks-1.sh");
  EXPECT_THAT(script, HasSubstr("#SBATCH --ntasks=4\n"));
  EXPECT_THAT(script, HasSubstr("srun --ntasks=4 --cpus-per-task=1 --mpi=pmix "));
  EXPECT_THAT(script, HasSubstr("\nexport OMPI_MCA_btl=${OMPI_MCA_btl:-^tcp,ofi}\n"));
  EXPECT_THAT(script, HasSubstr(" --resume ;;")) << "a job that is started again goes on";
  EXPECT_THAT(script, HasSubstr("#SBATCH --signal=USR1@120\n"));
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs("comm --device cuda --ranks 2,4 --bytes 1MiB");
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --gres=gpu:2\n"));
  EXPECT_THAT(job("tasks-2.sh"), HasSubstr("srun --ntasks=4 --cpus-per-task=4 --mpi=none "));
  EXPECT_THAT(job("submit.sh"), HasSubstr("afterany:${id0%%;*}:${id1%%;*}"));
}

// Slurm sends it to what srun started.
TEST_F(SbatchTest, ATrainingIsAskedToSaveBeforeItsLimitOfTime) {
  folder_.write(std::string(kOddName) + "/text", std::string(4000, 'a'));
  const std::string train = "train --text text --size tiny --context 8 --threads 1";
  write_jobs(train + " --checkpoint run");
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("#SBATCH --signal=USR1@120\n"));
  EXPECT_THAT(job("tasks-1.sh"), HasSubstr("\nsrun --ntasks=1 --cpus-per-task=1 --mpi=none "));
  std::filesystem::remove_all(work_ / "jobs");
  write_jobs(train);
  EXPECT_THAT(job("tasks-1.sh"), Not(HasSubstr("--signal")));
  EXPECT_THAT(job("tasks-1.sh"), Not(HasSubstr("srun --")));
}

// Ranks of srun without MPI meet on the node's own name, which other nodes can reach. In this build
// they then find that there is no GPU.
TEST_F(SbatchTest, RanksWithoutMpiGetASecretThatOthersCannotRead) {
  write_jobs("bench --size tiny --mode step --device cuda --batch 2 --parallel dp=2");
  const auto srun = folder_.write("bin/srun", R"(#!/bin/bash
stat -c 'secret %a' "$TRACESTEP_COMM_SECRET_FILE"
while [[ $1 == --* ]]; do shift; done
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=$$ SLURM_STEP_NODELIST=$(uname -n)
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" &
SLURM_PROCID=0 SLURM_LOCALID=0 "$@"
)");
  std::filesystem::permissions(srun, std::filesystem::perms::all);
  submit("TRACESTEP_COMM_TIMEOUT=20");
  EXPECT_THAT(job("log/tasks"), HasSubstr("secret 600\n"));
  EXPECT_THAT(job("log/tasks"), HasSubstr("CUDA"));
  EXPECT_THAT(job("log/tasks"), Not(HasSubstr("strangers")));
  EXPECT_FALSE(std::filesystem::exists(work_ / "jobs/cells/0.secret"));
}

TEST_F(SbatchTest, WhatTasksCannotShareIsRefused) {
  EXPECT_THAT(tracestep(kGrid + " --sbatch jobs --resume rows").err,
              HasSubstr("[--resume] tasks cannot share a file"));
  write_jobs(kGrid);
  const ProgramRun again = tracestep(kGrid + " --sbatch jobs");
  EXPECT_EQ(again.status, 5);
  EXPECT_THAT(again.err, HasSubstr("[--sbatch] jobs is there already"));
  EXPECT_EQ(tracestep("bench --context 8,many --sbatch other").status, 2);
  const std::string alone = tracestep(kGrid + " --published A100-40GB").err;
  EXPECT_THAT(alone, HasSubstr("add --sbatch DIR"));
  EXPECT_THAT(alone, HasSubstr("memory --predict say what a step needs on such a device"));
  EXPECT_THAT(tracestep(kGrid + " --published H100 --sbatch other").err,
              HasSubstr("[--published] its times are not those of the device null"));
  const Json identity = Json::Object{{"device", "cpu"}, {"cpu", "this machine lacks"}};
  folder_.write(std::string(kOddName) + "/node.json", text_of(planted_calibration(identity)));
  EXPECT_THAT(tracestep("bench --device cuda --calibration node.json --sbatch other").err,
              HasSubstr("[--calibration] its times are not those of the device cuda"));
  EXPECT_THAT(tracestep("train --text node.json --checkpoint run --overwrite --sbatch other").err,
              HasSubstr("[--overwrite] a job that is started again"));
  EXPECT_FALSE(std::filesystem::exists(work_ / "other"));
}

TEST_F(SbatchTest, AFolderThatIsGoneIsSaid) {
  const auto gone = folder_ / "gone";
  std::filesystem::create_directory(gone);
  const ProgramRun run =
      run_tracestep(words_of(kGrid + " --sbatch " + (folder_ / "new").string()),
                    {.folder = gone, .before_start = [&] { std::filesystem::remove(gone); }});
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr("[--sbatch] the folder that the jobs would start in has no name"));
}

TEST(RequestTest, WordsBelongToTheFlagThatTakesThem) {
  const cli::Words words{"bench", "--output=--size", "--size=a,b", "--all", "--resume", "-"};
  cli::Request request(words);
  EXPECT_EQ(request.value("--output"), "--size");
  EXPECT_EQ(request.value("--size"), "a,b");
  EXPECT_TRUE(request.has("--all"));
  EXPECT_FALSE(request.has("--format"));
  request.drop("--output");
  request.drop("--all");
  request.set("--size", "c");
  EXPECT_THAT(request.words(), ElementsAre("bench", "--size", "c", "--resume=-"));
  EXPECT_THAT(request.sorted_words(), ElementsAre("bench", "--resume=-", "--size", "c"));
}

}  // namespace
}  // namespace tracestep
