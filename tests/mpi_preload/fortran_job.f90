! Runs a job in Fortran by each of the three ways of MPI. It prints "fortran ok" if all sums are within the error of int8.
! With the argument "multiple" it asks for MPI_THREAD_MULTIPLE.
module values
  implicit none
  integer, parameter :: n = 20000
  integer :: failures = 0
contains
  subroutine fill(buffer, rank)
    real, intent(out) :: buffer(n)
    integer, intent(in) :: rank
    integer :: i
    do i = 1, n
      buffer(i) = sin(real(i)) * real(rank + 1)
    end do
  end subroutine fill

  subroutine check(what, buffer, ranks)
    character(*), intent(in) :: what
    real, intent(in) :: buffer(n)
    integer, intent(in) :: ranks
    integer :: i
    real :: all
    all = real(ranks * (ranks + 1) / 2)
    do i = 1, n
      if (abs(buffer(i) - sin(real(i)) * all) > 2.0 * all / 254.0 * 1.1) then
        print *, what, ': element', i, 'is', buffer(i)
        failures = failures + 1
        return
      end if
    end do
  end subroutine check
end module values

subroutine by_header(rank, ranks)
  use values
  implicit none
  include 'mpif.h'
  integer, intent(in) :: rank, ranks
  real :: mine(n), sum(n)
  integer :: error, request, own
  call fill(mine, rank)
  call MPI_Allreduce(mine, sum, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
  call check('mpif.h', sum, ranks)
  call MPI_Reduce(mine, sum, n, MPI_REAL, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) call check('mpif.h reduce', sum, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, own, error)
  call MPI_Iallreduce(mine, sum, n, MPI_REAL, MPI_SUM, own, request, error)
  call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  call MPI_Comm_free(own, error)
  call check('mpif.h request', sum, ranks)
  if (error /= MPI_SUCCESS .or. own /= MPI_COMM_NULL) failures = failures + 1
end subroutine by_header

subroutine by_module(rank, ranks)
  use mpi
  use values
  implicit none
  integer, intent(in) :: rank, ranks
  real :: mine(n)
  integer :: error
  call fill(mine, rank)
  call MPI_Allreduce(MPI_IN_PLACE, mine, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
  call check('use mpi', mine, ranks)
end subroutine by_module

subroutine by_new_module(rank, ranks)
  use mpi_f08
  use values
  implicit none
  integer, intent(in) :: rank, ranks
  real, asynchronous :: mine(n)
  type(MPI_Request) :: request
  call fill(mine, rank)
  call MPI_Allreduce(MPI_IN_PLACE, mine, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
  call check('use mpi_f08', mine, ranks)
  call fill(mine, rank)
  call MPI_Iallreduce(MPI_IN_PLACE, mine, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check('use mpi_f08 request', mine, ranks)
end subroutine by_new_module

program job
  use mpi
  use values
  implicit none
  integer :: error, rank, ranks, granted
  character(16) :: level
  call get_command_argument(1, level)
  if (level == 'multiple') then
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, granted, error)
  else
    call MPI_Init(error)
  end if
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call by_header(rank, ranks)
  call by_module(rank, ranks)
  call by_new_module(rank, ranks)
  call MPI_Allreduce(MPI_IN_PLACE, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0 .and. failures == 0) print '(a)', 'fortran ok'
  call MPI_Finalize(error)
  if (failures > 0) stop 1
end program job
