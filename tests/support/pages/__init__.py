"""Pages as programs: the console blocks of a page are run in order, and compared with what it shows.

What is not to be seen on a page stands in HTML comments, each before the block that it is about:

- ``<!-- file: job.yaml -->``: the next block is written into this file;
- ``<!-- run: ... -->``: commands to run here, one a line, whose output nobody reads;
- ``<!-- not run: reason -->``: the next block is not run;
- ``<!-- slow: reason -->``: the next block is run where slow ones are asked for;
- ``<!-- figures vary: reason -->``: in the next block any number stands for any other.

Times, durations, ports, numbers of processes and the width of columns never matter; a line ``...`` stands
for any lines. ``topmast up`` goes into the background, on a free port. `tests.support.pages.refresh`
writes what is printed today into the pages.
"""
