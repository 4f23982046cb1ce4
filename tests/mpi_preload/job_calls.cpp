// Makes calls of all kinds: some must be exact with the preload too, and some are compressed.
#include <cstring>
#include <numeric>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

constexpr int kLarge = 100003;  // prime, and far above the floor in any type

template <typename T>
void expect_exact_sum(MPI_Datatype type, int count) {
  const std::vector<T> mine = ramp<T>(static_cast<std::size_t>(count));
  std::vector<T> sum(mine.size());
  std::vector<T> in_place = mine;
  JOB_CHECK(MPI_Allreduce(mine.data(), sum.data(), count, type, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  JOB_CHECK(MPI_Allreduce(MPI_IN_PLACE, in_place.data(), count, type, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  bool right = sum == in_place;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    right = right && sum[i] == ramp_sum<T>(i);
  }
  JOB_CHECK(right);
}

void add(const float* from, float* to, int count) {
  for (int i = 0; i < count; ++i) {
    to[i] += from[i];
  }
}
// NOLINTBEGIN(readability-non-const-parameter): the signature is MPI's
void add_floats(void* in, void* inout, int* count, MPI_Datatype*) {
  add(static_cast<const float*>(in), static_cast<float*>(inout), *count);
}
void add_pairs(void* in, void* inout, int* count, MPI_Datatype*) {
  add(static_cast<const float*>(in), static_cast<float*>(inout), 2 * *count);
}
// NOLINTEND(readability-non-const-parameter)

void expect_exact_sum_by_users_operation(MPI_User_function* operation, MPI_Datatype type, std::size_t floats) {
  MPI_Op add = MPI_OP_NULL;
  MPI_Op_create(operation, 1, &add);
  std::vector<float> values = ramp<float>(floats);
  MPI_Allreduce(MPI_IN_PLACE, values.data(), kLarge, type, add, MPI_COMM_WORLD);
  bool right = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    right = right && values[i] == ramp_sum<float>(i);
  }
  JOB_CHECK(right);
  MPI_Op_free(&add);
}

}  // namespace

void exact_types() {
  expect_exact_sum<int>(MPI_INT, kLarge);
  expect_exact_sum<long long>(MPI_LONG_LONG, kLarge);
  expect_exact_sum<double>(MPI_DOUBLE, kLarge);
  expect_exact_sum<unsigned short>(MPI_UNSIGNED_SHORT, kLarge);
  for (const int count : {0, 1, 7, 4099, 8191}) {  // below the floor
    expect_exact_sum<float>(MPI_FLOAT, count);
    expect_exact_sum<int>(MPI_INT, count);
  }

  const std::vector<float> mine = ramp<float>(kLarge);
  std::vector<float> result(mine.size());
  MPI_Allreduce(mine.data(), result.data(), kLarge, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  JOB_CHECK(result[57] == static_cast<float>(57 + g_size - 1));
  MPI_Allreduce(mine.data(), result.data(), kLarge, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
  JOB_CHECK(result == ramp<float>(kLarge) || g_rank != 0);
  MPI_Allreduce(mine.data(), result.data(), kLarge, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD);
  JOB_CHECK(result[0] == 0.0F);

  expect_exact_sum_by_users_operation(&add_floats, MPI_FLOAT, kLarge);
  MPI_Datatype pair = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_FLOAT, &pair);
  MPI_Type_commit(&pair);
  expect_exact_sum_by_users_operation(&add_pairs, pair, std::size_t{2} * kLarge);
  MPI_Type_free(&pair);
}

void exact_shapes() {
  // These reduce-scatters are not compressed: integers, and floats below the floor.
  std::vector<int> counts(static_cast<std::size_t>(g_size), 30011);
  counts[0] = 0;
  const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0));
  const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(g_rank)]);
  const std::size_t first = g_rank == 0 ? 0 : std::size_t{30011} * static_cast<std::size_t>(g_rank - 1);
  const std::vector<int> mine = ramp<int>(total);
  std::vector<int> part(own + 1, -5);
  MPI_Reduce_scatter(mine.data(), part.data(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < own; ++i) {
    JOB_CHECK(part[i] == ramp_sum<int>(first + i));
  }
  JOB_CHECK(part[own] == -5);

  const std::vector<float> small = ramp<float>(static_cast<std::size_t>(g_size) * 13);
  std::vector<float> piece(13);
  MPI_Reduce_scatter_block(small.data(), piece.data(), 13, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < piece.size(); ++i) {
    JOB_CHECK(piece[i] == ramp_sum<float>(static_cast<std::size_t>(g_rank * 13) + i));
  }
  MPI_Reduce_scatter_block(small.data(), piece.data(), 0, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// Prints how many elements are not exact; without the preload there are none.
void compressed() {
  std::size_t different = 0;
  for (const std::size_t count : {std::size_t{16384}, std::size_t{20011}, std::size_t{1} << 20}) {
    const int n = static_cast<int>(count);
    const std::vector<float> mine = values_of(g_rank, count);
    std::vector<float> result(count);
    MPI_Allreduce(mine.data(), result.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    different += compare(result.data(), 0, count, g_size);
    JOB_CHECK(same_everywhere(result, MPI_COMM_WORLD));
    JOB_CHECK(mine == values_of(g_rank, count));
    result = mine;
    MPI_Allreduce(MPI_IN_PLACE, result.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    different += compare(result.data(), 0, count, g_size);
    JOB_CHECK(same_everywhere(result, MPI_COMM_WORLD));
  }

  const std::size_t segment = 20011;
  const std::size_t total = segment * static_cast<std::size_t>(g_size);
  const std::size_t first = segment * static_cast<std::size_t>(g_rank);
  const std::vector<float> mine = values_of(g_rank, total);
  std::vector<float> part(segment);
  MPI_Reduce_scatter_block(mine.data(), part.data(), static_cast<int>(segment), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  different += compare(part.data(), first, segment, g_size);
  std::vector<float> in_place = mine;
  MPI_Reduce_scatter_block(MPI_IN_PLACE, in_place.data(), static_cast<int>(segment), MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
  different += compare(in_place.data(), first, segment, g_size);

  // Rank 0 gets nothing, and the last rank also gets its share.
  std::vector<int> counts(static_cast<std::size_t>(g_size), static_cast<int>(segment));
  counts.front() = 0;
  counts.back() += static_cast<int>(segment);
  const std::size_t own_first = g_rank == 0 ? 0 : segment * static_cast<std::size_t>(g_rank - 1);
  const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(g_rank)]);
  part.assign(own + 1, -7);
  MPI_Reduce_scatter(mine.data(), part.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  different += compare(part.data(), own_first, own, g_size);
  JOB_CHECK(part[own] == -7);
  float* const share = own == 0 ? nullptr : part.data();  // an empty share has no buffer; other ranks must not wait
  MPI_Reduce_scatter(mine.data(), share, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  different += compare(part.data(), own_first, own, g_size);
  in_place = mine;
  MPI_Reduce_scatter(MPI_IN_PLACE, in_place.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  different += compare(in_place.data(), own_first, own, g_size);

  if (g_rank == 0) {
    std::printf("different %s\n", different > 0 ? "yes" : "no");
  }
}

// One rank gets the sum, in place or not; the others may pass no buffer for it.
void rooted() {
  std::size_t different = 0;
  for (int root = 0; root < g_size; ++root) {
    for (const bool in_place : {false, true}) {
      if (in_place && root > 0) {
        continue;  // MPICH 4.0.2 itself crashes there
      }
      const bool mine_is_kept = g_rank != root || !in_place;
      std::vector<float> mine = values_of(g_rank, kLarge);
      std::vector<float> result(g_rank == root && !in_place ? kLarge : 0);
      float* const to = g_rank != root ? nullptr : (in_place ? mine.data() : result.data());
      const void* const from = g_rank == root && in_place ? MPI_IN_PLACE : mine.data();
      JOB_CHECK(MPI_Reduce(from, to, kLarge, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD) == MPI_SUCCESS);
      if (g_rank == root) {
        different += compare(to, 0, kLarge, g_size);
      }
      JOB_CHECK(!mine_is_kept || mine == values_of(g_rank, kLarge));
    }
  }
  std::vector<int> whole = ramp<int>(kLarge);
  MPI_Reduce(g_rank == 0 ? MPI_IN_PLACE : whole.data(), g_rank == 0 ? whole.data() : nullptr, kLarge, MPI_INT, MPI_SUM,
             0, MPI_COMM_WORLD);
  JOB_CHECK(g_rank != 0 || whole[57] == ramp_sum<int>(57));
  if (g_rank == 0) {
    std::printf("different %s\n", different > 0 ? "yes" : "no");
  }
}

void requests() {
  constexpr std::size_t kCount = 50000;
  std::vector<std::vector<float>> results(3, ramp<float>(kCount));
  const std::vector<float> mine = ramp<float>(kCount);
  MPI_Request pending[5] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Iallreduce(mine.data(), results[0].data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending[1]);
  MPI_Iallreduce(MPI_IN_PLACE, results[1].data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending[3]);
  for (int done = 0; done < 2;) {
    int index = 0;
    int flag = 0;
    MPI_Testany(5, pending, &index, &flag, MPI_STATUS_IGNORE);
    JOB_CHECK(flag == 0 || index == 1 || index == 3);
    done += flag;
  }
  MPI_Iallreduce(mine.data(), results[2].data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending[0]);
  // This blocking call may be compressed. It is the first on the communicator, while a request is pending.
  std::vector<float> blocking = values_of(g_rank, kCount);
  MPI_Allreduce(MPI_IN_PLACE, blocking.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  compare(blocking.data(), 0, kCount, g_size);
  MPI_Waitall(5, pending, MPI_STATUSES_IGNORE);
  for (const std::vector<float>& result : results) {
    bool right = true;
    for (std::size_t i = 0; i < kCount; ++i) {
      right = right && result[i] == ramp_sum<float>(i);
    }
    JOB_CHECK(right);
  }
  std::vector<float> piece(kCount);
  const std::vector<float> all = ramp<float>(kCount * static_cast<std::size_t>(g_size));
  MPI_Ireduce_scatter_block(all.data(), piece.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending[0]);
  MPI_Wait(&pending[0], MPI_STATUS_IGNORE);
  JOB_CHECK(piece[3] == ramp_sum<float>(kCount * static_cast<std::size_t>(g_rank) + 3));
}

}  // namespace job
