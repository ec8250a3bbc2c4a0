// The processes of an MPI job. Waiting for them does not spin for long, has a time limit, and names
// the process that does not come.
#pragma once

#define OMPI_SKIP_MPICXX 1  // Only MPI's C interface is used.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <vector>

#include "runtime/processes.h"

namespace tracestep {

class MpiWorld final : public Processes {
 public:
  explicit MpiWorld(double timeout_s);
  ~MpiWorld() override;
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const override { return rank_; }
  int count() const override { return count_; }
  int local_rank() const override { return local_rank_; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override;
  void broadcast(std::span<std::byte> bytes) override;
  // Waits for rank 0; on ranks other than 0 without a time limit. MPI's launcher notices when a
  // process has ended, but not when it hangs.
  void wait_for_first() override;
  [[noreturn]] void end_all(const std::string& line, int status) override;

  // Messages to and from other ranks that are in progress at the same time.
  class Messages {
   public:
    // `what` is the messages' purpose, for the error about a rank that does not come.
    Messages(MpiWorld& world, const char* what) : world_(world), what_(what) {}
    void send(const void* bytes, std::size_t count, int to);
    void receive(void* bytes, std::size_t count, int from);
    // Waits for all messages. Throws RankError for a rank that does not come in time.
    void wait() { wait(world_.timeout_s_); }
    void wait(double limit_s);

   private:
    MpiWorld& world_;
    const char* const what_;
    std::vector<MPI_Request> requests_;
    std::vector<int> others_;  // The other rank of each request.
  };

 private:
  void show_failure_of_another();
  [[noreturn]] void write_and_abort(const std::string& line, int status);

  const double timeout_s_;
  MPI_Comm data_ = MPI_COMM_NULL, failures_ = MPI_COMM_NULL;
  int rank_ = 0, count_ = 1, local_rank_ = 0;
};

}  // namespace tracestep
