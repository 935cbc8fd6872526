"""The guard: a process that runs a program within walls; started by `podium.tasks.sandbox`.

    __main__     the script that is started: it loads this room alone, not all of Podium
    request      what the guard is asked, line by line, and what it tells
    walls        which walls this system lets us build, and putting one process behind them
    namespaces   of users, processes, network and mounts: an empty machine around the program
    landlock     which files may be opened, held by the kernel
    seccomp      which system calls may be made, held by the kernel
    kernel       the system calls that Python has no names for
    tree         the processes below, and what they hold
    box          starting a child behind the walls, watching it, ending all that it started
    program      being the program, for one input
    server       being the program for a check that calls it
    examiner     a check that runs apart from the program, and calls it
    exam         a check that runs together with the program, and the canary beside it
    wire         values and questions between the two

Standard library only: nothing of Podium is in the guard's memory, of which the program is a copy.
"""
