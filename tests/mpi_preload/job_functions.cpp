// Calls every function that a drop-in intercepts, like job_programs.cpp: OSU's own check, and a call of each kind.
#include <numeric>
#include <type_traits>
#include <utility>

#include "tests/mpi_preload/job_hash.hpp"

namespace job {
namespace {

// The arguments for a call of any of the functions.
struct Arguments {
  const void* send;
  void* receive;
  const int* counts;  // elements of each rank, if the result is scattered
  int count;          // elements of the whole input, or of a rank's segment if these are equal
  MPI_Datatype type;
  MPI_Op op;
  int root;
  MPI_Comm comm;
};

enum class Result : std::uint8_t { everywhere, at_root, segments, equal_segments };

struct Function {
  const char* name;
  Result result;
  bool of_osu;
  int (*call)(const Arguments&);
};

int wait_for(int started, MPI_Request request) {
  const int waited = MPI_Wait(&request, MPI_STATUS_IGNORE);
  return started != MPI_SUCCESS ? started : waited;
}

#if MPI_VERSION >= 4
int start_twice(int made, MPI_Request request) {
  // The second start reads the output of the first: in place, that is its sum.
  for (int i = 0; i < 2 && made == MPI_SUCCESS; ++i) {
    made = MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&request);
  return made;
}

std::vector<MPI_Count> wide(const Arguments& a) {
  int size = 0;
  MPI_Comm_size(a.comm, &size);
  return {a.counts, a.counts + size};
}
#endif

constexpr Function kFunctions[] = {
    {"MPI_Allreduce", Result::everywhere, true,
     [](const Arguments& a) { return MPI_Allreduce(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Reduce", Result::at_root, true,
     [](const Arguments& a) { return MPI_Reduce(a.send, a.receive, a.count, a.type, a.op, a.root, a.comm); }},
    {"MPI_Reduce_scatter", Result::segments, true,
     [](const Arguments& a) { return MPI_Reduce_scatter(a.send, a.receive, a.counts, a.type, a.op, a.comm); }},
    {"MPI_Reduce_scatter_block", Result::equal_segments, true,
     [](const Arguments& a) { return MPI_Reduce_scatter_block(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Iallreduce", Result::everywhere, true,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Iallreduce(a.send, a.receive, a.count, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
    {"MPI_Ireduce_scatter", Result::segments, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Ireduce_scatter(a.send, a.receive, a.counts, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
    {"MPI_Ireduce_scatter_block", Result::equal_segments, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Ireduce_scatter_block(a.send, a.receive, a.count, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
#if MPI_VERSION >= 4
    {"MPI_Allreduce_c", Result::everywhere, false,
     [](const Arguments& a) { return MPI_Allreduce_c(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Reduce_c", Result::at_root, false,
     [](const Arguments& a) { return MPI_Reduce_c(a.send, a.receive, a.count, a.type, a.op, a.root, a.comm); }},
    {"MPI_Reduce_scatter_c", Result::segments, false,
     [](const Arguments& a) { return MPI_Reduce_scatter_c(a.send, a.receive, wide(a).data(), a.type, a.op, a.comm); }},
    {"MPI_Reduce_scatter_block_c", Result::equal_segments, false,
     [](const Arguments& a) { return MPI_Reduce_scatter_block_c(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Allreduce_init", Result::everywhere, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Allreduce_init(a.send, a.receive, a.count, a.type, a.op, a.comm, MPI_INFO_NULL, &request);
       return start_twice(code, request);
     }},
#endif
};

// Makes one call of `function` on `comm`, and returns the values to be compared: the input after the call, the result,
// and the error code.
template <typename T>
class Call {
 public:
  Call(const Function& function, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
      : function_(function), type_(type), op_(op), root_(root), comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }

  // `elements` is the size of the input, or more if segments are equal. Returns the number.
  std::size_t deal(std::size_t elements) {
    const auto ranks = static_cast<std::size_t>(size_);
    counts_.assign(ranks, static_cast<int>(elements / ranks));
    for (std::size_t i = 0; i < elements % ranks; ++i) {
      ++counts_[i];
    }
    if (function_.result == Result::equal_segments) {
      std::fill(counts_.begin(), counts_.end(), counts_[0]);
    }
    return static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.end(), 0));
  }

  void make(std::vector<T> input, bool in_place) {
    input_ = std::move(input);
    const auto own = static_cast<std::size_t>(counts_[static_cast<std::size_t>(rank_)]);
    const bool scattered = function_.result == Result::segments || function_.result == Result::equal_segments;
    const bool has_result = function_.result != Result::at_root || rank_ == root_;
    const bool from_result = in_place && has_result;
    result_ = from_result ? input_ : std::vector<T>(!has_result ? 0 : (scattered ? own : input_.size()), T{5});
    code_ = function_.call(
        {.send = from_result ? MPI_IN_PLACE : input_.data(),
         .receive = has_result ? result_.data() : nullptr,
         .counts = counts_.data(),
         .count = function_.result == Result::equal_segments ? counts_[0] : static_cast<int>(input_.size()),
         .type = type_,
         .op = op_,
         .root = root_,
         .comm = comm_});
    first_ = scattered ? static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.begin() + rank_, 0)) : 0;
    if (scattered) {
      result_.resize(own);  // after a call in place, the memory behind the result is up to the library
    }
  }

  // Element i of the result is element first() + i of the sum.
  [[nodiscard]] const std::vector<T>& result() const { return result_; }
  [[nodiscard]] std::size_t first() const { return first_; }
  void into(Hash& hash) const {
    hash.add(input_);
    hash.add(result_);
    hash.add(&code_, 1);
  }

 private:
  const Function& function_;
  MPI_Datatype type_;
  MPI_Op op_;
  int root_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1, code_ = 0;
  std::vector<int> counts_;
  std::vector<T> input_, result_;
  std::size_t first_ = 0;
};

// Returns whether MPICH 4.0.2 itself crashes, which it does if a rank other than the first gets a sum in place.
bool crashes_in_mpich([[maybe_unused]] const Function& function, [[maybe_unused]] bool in_place,
                      [[maybe_unused]] int root) {
#ifdef MPICH_VERSION
  return function.result == Result::at_root && in_place && root > 0;
#else
  return false;
#endif
}

// Makes sums and maxima of one type with every function, in place and not, for the first and the last rank.
template <typename T>
void call_each(MPI_Datatype type, MPI_Comm comm, Hash& hash) {
  constexpr std::size_t kElements = 40001;  // above the floor in any type, and no multiple of the number of ranks
  int size = 1;
  MPI_Comm_size(comm, &size);
  for (const Function& function : kFunctions) {
    const int roots = function.result == Result::at_root && size > 1 ? 2 : 1;
    for (int root = 0; root < roots; ++root) {
      for (const bool in_place : {false, true}) {
        if (crashes_in_mpich(function, in_place, root)) {
          continue;
        }
        for (MPI_Op op : {MPI_SUM, MPI_MAX}) {
          Call<T> call(function, type, op, root * (size - 1), comm);
          std::vector<T> input(call.deal(kElements));
          for (std::size_t i = 0; i < input.size(); ++i) {
            input[i] = static_cast<T>((std::is_integral_v<T> ? 1000.0F : 1.0F) * value_of(g_rank, i));
          }
          call.make(std::move(input), in_place);
          call.into(hash);
        }
      }
    }
  }
}

// Returns the values that osu_allreduce -c and similar programs send, and their expected result for `size` ranks.
float osu_value(std::size_t i, int iteration) { return static_cast<float>((i % 100 + 1) * (iteration + 1U)); }

std::size_t osu_errors(const Function& function, std::size_t elements, bool in_place, int root, int iteration,
                       Hash& hash) {
  Call<float> call(function, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  std::vector<float> input(call.deal(elements));
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = osu_value(i, iteration);
  }
  call.make(std::move(input), in_place);
  call.into(hash);
  std::size_t errors = 0;
  for (std::size_t i = 0; i < call.result().size(); ++i) {
    const float expected = osu_value(call.first() + i, iteration) * static_cast<float>(g_size);
    errors += call.result()[i] == expected ? 0U : 1U;
  }
  return errors;
}

}  // namespace

// Checks every element of every sum, from 4 bytes to 1 MiB.
void osu() {
  constexpr int kIterations = 2;
  std::size_t errors = 0;
  Hash hash;
  for (const Function& function : kFunctions) {
    if (!function.of_osu) {
      continue;
    }
    std::size_t of_function = 0;
    for (std::size_t elements = 1; elements <= std::size_t{1} << 18; elements *= 8) {
      for (int root = 0; root < (function.result == Result::at_root ? 2 : 1); ++root) {
        for (const bool in_place : {false, true}) {
          for (int i = 0; i < kIterations && !crashes_in_mpich(function, in_place, root); ++i) {
            of_function += osu_errors(function, elements, in_place, root * (g_size - 1), i, hash);
          }
        }
      }
    }
    if (of_function != 0) {
      std::printf("[rank %d] %s: %zu elements are wrong\n", g_rank, function.name, of_function);
    }
    errors += of_function;
  }
  JOB_CHECK(errors == 0);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("osu: hash %llu\n", of_all);
  }
}

// Makes a call of each kind, on all ranks and on the two parts of a world of three.
void each_call() {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, g_rank == 1 ? 1 : 0, g_rank, &part);
  Hash hash;
  for (MPI_Comm comm : {MPI_COMM_WORLD, part}) {
    call_each<float>(MPI_FLOAT, comm, hash);
    call_each<double>(MPI_DOUBLE, comm, hash);
    call_each<int>(MPI_INT, comm, hash);
  }
  MPI_Comm_free(&part);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("each_call: hash %llu\n", of_all);
  }
}

}  // namespace job
