/* Included before the MPI transport where that is part of the drop-in: its calls then go straight to the library, past
   definitions of the public names by the drop-in, the job or a tracing tool. */
#ifndef GRADWIRE_PROFILING_NAMES_H
#define GRADWIRE_PROFILING_NAMES_H
#define MPI_Allreduce PMPI_Allreduce
#define MPI_Cancel PMPI_Cancel
#define MPI_Comm_compare PMPI_Comm_compare
#define MPI_Comm_free PMPI_Comm_free
#define MPI_Comm_group PMPI_Comm_group
#define MPI_Comm_get_attr PMPI_Comm_get_attr
#define MPI_Comm_get_parent PMPI_Comm_get_parent
#define MPI_Comm_idup PMPI_Comm_idup
#define MPI_Comm_rank PMPI_Comm_rank
#define MPI_Comm_set_errhandler PMPI_Comm_set_errhandler
#define MPI_Comm_set_name PMPI_Comm_set_name
#define MPI_Comm_size PMPI_Comm_size
#define MPI_Comm_split_type PMPI_Comm_split_type
#define MPI_Comm_test_inter PMPI_Comm_test_inter
#define MPI_Error_class PMPI_Error_class
#define MPI_Error_string PMPI_Error_string
#define MPI_Finalized PMPI_Finalized
#define MPI_Get_count PMPI_Get_count
#define MPI_Iallgather PMPI_Iallgather
#define MPI_Iallreduce PMPI_Iallreduce
#define MPI_Ialltoallv PMPI_Ialltoallv
#define MPI_Ibcast PMPI_Ibcast
#define MPI_Group_free PMPI_Group_free
#define MPI_Group_size PMPI_Group_size
#define MPI_Group_translate_ranks PMPI_Group_translate_ranks
#define MPI_Improbe PMPI_Improbe
#define MPI_Imrecv PMPI_Imrecv
#define MPI_Initialized PMPI_Initialized
#define MPI_Irecv PMPI_Irecv
#define MPI_Is_thread_main PMPI_Is_thread_main
#define MPI_Isend PMPI_Isend
#define MPI_Query_thread PMPI_Query_thread
#define MPI_Test PMPI_Test
#define MPI_Testall PMPI_Testall
#define MPI_Testsome PMPI_Testsome
#endif
